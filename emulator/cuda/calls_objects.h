// What calls.tsv names: objects, structures and lists for calls of the driver API, each made when it is first asked
// for, in a context of its own. For tests only; one thread.
#ifndef METE_EMULATOR_CUDA_CALLS_OBJECTS_H_
#define METE_EMULATOR_CUDA_CALLS_OBJECTS_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {

inline constexpr char kCallsText[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 4 .u32 value = 1;\n"
    ".visible .entry put(.param .u64 p)\n{\n .reg .b64 %rd<2>;\n .reg .b32 %r<2>;\n ld.param.u64 %rd1, [p];\n"
    " mov.u32 %r1, 6;\n st.global.u32 [%rd1], %r1;\n ret;\n}\n";

class CallObjects {
 public:
  CallObjects() {
    Ok(::cuCtxCreate_v4(&context_, nullptr, 0, 0));
    Fill();
  }
  ~CallObjects() {
    // Mappable memory outlives its context, and takes real pages while it can be shared.
    if (values_.contains("reserved")) {
      ::cuMemUnmap(As<CUdeviceptr>("reserved"), 2 << 20);
      ::cuMemAddressFree(As<CUdeviceptr>("reserved"), 2 << 20);
    }
    if (values_.contains("phys")) ::cuMemRelease(As<CUmemGenericAllocationHandle>("phys"));
    // Calls may have left a primary context and a pool of their own in force.
    ::cuDevicePrimaryCtxReset_v2(0);
    CUmemoryPool pool = nullptr;
    if (::cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS) ::cuDeviceSetMemPool(0, pool);
    for (CUcontext context : {context_, peer_}) {
      if (context != nullptr) ::cuCtxDestroy_v2(context);  // the call may have done so already
    }
    CUcontext left = nullptr;
    while (::cuCtxPopCurrent_v2(&left) == CUDA_SUCCESS) ::cuCtxDestroy_v2(left);
  }
  CUcontext context() const { return context_; }

  // The value of an object, or the address of a structure or list (`&name`). 0: there is no such name.
  uint64_t Get(const std::string& name) {
    auto known = values_.find(name);
    if (known != values_.end()) return known->second;
    auto maker = makers_.find(name);
    if (maker == makers_.end()) return 0;
    const uint64_t value = maker->second();
    values_[name] = value;
    EXPECT_EQ(::cuCtxSetCurrent(context_), CUDA_SUCCESS);
    return value;
  }

 private:
  static void Ok(CUresult result) { ASSERT_EQ(result, CUDA_SUCCESS); }
  template <typename T>
  T As(const char* name) {
    const uint64_t value = Get(name);
    T result;
    static_assert(sizeof result <= sizeof value);
    memcpy(&result, &value, sizeof result);
    return result;
  }
  template <typename T>
  static uint64_t Value(T handle) {
    uint64_t value = 0;
    memcpy(&value, &handle, sizeof handle);
    return value;
  }
  // A structure that lives as long as this does.
  template <typename T>
  T* Keep(const T& value) {
    static_assert(sizeof(T) <= sizeof(Room));
    uint8_t* room = rooms_.emplace_back().bytes;
    memcpy(room, &value, sizeof value);
    return reinterpret_cast<T*>(room);
  }
  template <typename T>
  uint64_t Address(const T& value) {
    return reinterpret_cast<uint64_t>(Keep(value));
  }
  // An object that one call makes.
  template <typename T>
  void Object(const char* name, std::function<CUresult(T*)> make) {
    makers_[name] = [make] {
      T object{};
      Ok(make(&object));
      return Value(object);
    };
  }
  template <typename T>
  void Structure(const char* name, std::function<T()> make) {
    makers_[name] = [this, make] { return Address(make()); };
  }
  void Node(const char* name, const std::function<CUresult(CUgraphNode*, CUgraph)>& add) {
    Object<CUgraphNode>(name, [this, add](CUgraphNode* node) { return add(node, As<CUgraph>("graph")); });
  }

  void Fill();
  void FillHandles();
  void FillMemory();
  void FillGraphs();
  void FillNodes();
  void FillCopies();
  void FillTextures();
  void FillSharing();
  int File(size_t bytes) {
    const int file = memfd_create("calls", MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
    return file;
  }

  struct Room {
    alignas(16) uint8_t bytes[512] = {};
  };
  CUcontext context_ = nullptr, peer_ = nullptr;
  std::map<std::string, uint64_t> values_;
  std::map<std::string, std::function<uint64_t()>> makers_;
  std::deque<Room> rooms_;
};

inline void CallObjects::Fill() {
  FillHandles();
  FillMemory();
  FillGraphs();
  FillNodes();
  FillCopies();
  FillTextures();
  FillSharing();
}

inline void CallObjects::FillHandles() {
  values_["ctx"] = Value(context_);
  values_["dev"] = 0;
  values_["zero"] = 0;
  values_["textsize"] = sizeof kCallsText;
  for (auto [name, number] : {std::pair{"&zero", 0}, {"&one", 1}, {"&four", 4}, {"&mode", 0}}) {
    makers_[name] = [this, n = uint64_t{static_cast<unsigned>(number)}] { return Address(n); };
  }
  makers_["&text"] = [] { return reinterpret_cast<uint64_t>(kCallsText); };
  makers_["&outlist"] = [this] { return Address(reinterpret_cast<uint64_t>(Keep(uint64_t{0}))); };
  makers_["hostfn"] = [] { return Value(CUhostFn{[](void*) {}}); };
  makers_["callback"] = [] { return Value(CUstreamCallback{[](CUstream, CUresult, void*) {}}); };
  makers_["peer"] = [this] {
    Ok(::cuCtxCreate_v4(&peer_, nullptr, 0, 1));
    return Value(peer_);
  };
  Object<CUstream>("stream", [](CUstream* s) { return ::cuStreamCreate(s, CU_STREAM_NON_BLOCKING); });
  Object<CUstream>("stream2", [](CUstream* s) { return ::cuStreamCreate(s, CU_STREAM_NON_BLOCKING); });
  Object<CUstream>("capturing", [](CUstream* s) {
    Ok(::cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
    return ::cuStreamBeginCapture_v2(*s, CU_STREAM_CAPTURE_MODE_RELAXED);
  });
  Object<CUevent>("event", [](CUevent* e) { return ::cuEventCreate(e, 0); });
  Object<CUevent>("ipcevent",
                  [](CUevent* e) { return ::cuEventCreate(e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING); });
  Object<CUmodule>("module", [](CUmodule* m) { return ::cuModuleLoadData(m, kCallsText); });
  Object<CUfunction>("function",
                     [this](CUfunction* f) { return ::cuModuleGetFunction(f, As<CUmodule>("module"), "put"); });
  Object<CUlibrary>("library", [](CUlibrary* l) {
    return ::cuLibraryLoadData(l, kCallsText, nullptr, nullptr, 0, nullptr, nullptr, 0);
  });
  Object<CUkernel>("kernel", [this](CUkernel* k) { return ::cuLibraryGetKernel(k, As<CUlibrary>("library"), "put"); });
  Object<CUlinkState>("link", [](CUlinkState* l) { return ::cuLinkCreate_v2(0, nullptr, nullptr, l); });
  Object<CUlinkState>("linked", [](CUlinkState* l) {
    Ok(::cuLinkCreate_v2(0, nullptr, nullptr, l));
    return ::cuLinkAddData_v2(*l, CU_JIT_INPUT_PTX, const_cast<char*>(kCallsText), sizeof kCallsText, nullptr, 0,
                              nullptr, nullptr);
  });
  Structure<void*>("&parameters", [this]() -> void* { return Keep(As<CUdeviceptr>("dptr")); });
  Structure<CUlaunchConfig>("&launchconfig", [] {
    CUlaunchConfig c{};
    c.gridDimX = c.gridDimY = c.gridDimZ = c.blockDimX = c.blockDimY = c.blockDimZ = 1;
    return c;
  });
  Structure<CUDA_LAUNCH_PARAMS>("&launchlist", [this] {
    return CUDA_LAUNCH_PARAMS{As<CUfunction>("function"), 1, 1, 1, 1, 1, 1, 0, As<CUstream>("stream"),
                              As<void**>("&parameters")};
  });
}

inline void CallObjects::FillMemory() {
  for (const char* name : {"dptr", "dptr2"})
    Object<CUdeviceptr>(name, [](CUdeviceptr* p) { return ::cuMemAlloc_v2(p, 4096); });
  for (const char* name : {"low", "low2"})
    Object<CUdeviceptr_v1>(name, [](CUdeviceptr_v1* p) { return ::cuMemAlloc(p, 4096); });
  Object<CUdeviceptr>("managed", [](CUdeviceptr* p) { return ::cuMemAllocManaged(p, 4096, CU_MEM_ATTACH_GLOBAL); });
  Object<void*>("host", [](void** p) { return ::cuMemHostAlloc(p, 4096, 0); });
  makers_["pages"] = [] {
    return reinterpret_cast<uint64_t>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  makers_["registered"] = [this] {
    Ok(::cuMemHostRegister_v2(As<void*>("pages"), 4096, 0));
    return Get("pages");
  };
  // A location by value fits a register: its type, then its id.
  values_["location"] = CU_MEM_LOCATION_TYPE_DEVICE;
  Structure<CUmemLocation>("&location", [] { return CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0}; });
  Structure<CUmemAccessDesc>("&access", [] {
    return CUmemAccessDesc{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  });
  Structure<CUmemAllocationProp>("&prop", [] {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return p;
  });
  Structure<CUmemPoolProps>("&poolprops", [] {
    CUmemPoolProps p{};
    p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return p;
  });
  Object<CUmemoryPool>("pool",
                       [this](CUmemoryPool* p) { return ::cuMemPoolCreate(p, As<CUmemPoolProps*>("&poolprops")); });
  Object<CUdeviceptr>("poolptr", [this](CUdeviceptr* p) {
    return ::cuMemAllocFromPoolAsync(p, 4096, As<CUmemoryPool>("pool"), nullptr);
  });
  Object<CUmemGenericAllocationHandle>("phys", [this](CUmemGenericAllocationHandle* h) {
    return ::cuMemCreate(h, 2 << 20, As<CUmemAllocationProp*>("&prop"), 0);
  });
  Object<CUdeviceptr>("reserved", [](CUdeviceptr* p) { return ::cuMemAddressReserve(p, 2 << 20, 0, 0, 0); });
  makers_["mapped"] = [this] {
    const auto address = As<CUdeviceptr>("reserved");
    Ok(::cuMemMap(address, 2 << 20, 0, As<CUmemGenericAllocationHandle>("phys"), 0));
    Ok(::cuMemSetAccess(address, 2 << 20, As<CUmemAccessDesc*>("&access"), 1));
    return uint64_t{address};
  };
  makers_["&dptrlist"] = [this] { return Address(As<CUdeviceptr>("dptr")); };
  makers_["&dptr2list"] = [this] { return Address(As<CUdeviceptr>("dptr2")); };
  makers_["&managedlist"] = [this] { return Address(As<CUdeviceptr>("managed")); };
  makers_["&sizelist"] = [this] { return Address(size_t{64}); };
  Structure<CUstreamBatchMemOpParams>("&batchsteps", [this] {
    CUstreamBatchMemOpParams step{};
    step.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    step.writeValue.address = As<CUdeviceptr>("dptr");
    step.writeValue.value = 5;
    return step;
  });
}

inline void CallObjects::FillGraphs() {
  for (const char* name : {"graph", "memgraph"})
    Object<CUgraph>(name, [](CUgraph* g) { return ::cuGraphCreate(g, 0); });
  Object<CUgraph>("graph2", [this](CUgraph* g) {
    Ok(::cuGraphCreate(g, 0));
    CUgraphNode node = nullptr;
    Ok(::cuGraphAddEmptyNode(&node, *g, nullptr, 0));
    values_["node2"] = Value(node);
    return CUDA_SUCCESS;
  });
  makers_["node2"] = [this] {
    Get("graph2");
    return values_["node2"];
  };
  Object<CUgraph>("clone", [this](CUgraph* g) { return ::cuGraphClone(g, As<CUgraph>("graph2")); });
  Object<CUgraphExec>("exec", [this](CUgraphExec* e) {
    for (const char* name : {"node_batch", "node_child", "node_record", "node_wait", "node_signal", "node_semwait",
                             "node_host", "node_kernel", "node_memcpy", "node_memset"})
      Get(name);
    // These write the same memory: one after the other.
    const char* const writers[] = {"node_memset", "node_memcpy", "node_kernel", "node_batch"};
    for (int i = 0; i < 3; ++i) {
      const auto from = As<CUgraphNode>(writers[i]), to = As<CUgraphNode>(writers[i + 1]);
      Ok(::cuGraphAddDependencies(As<CUgraph>("graph"), &from, &to, 1));
    }
    return ::cuGraphInstantiateWithFlags(e, As<CUgraph>("graph"), 0);
  });
  Object<CUuserObject>("object", [](CUuserObject* o) {
    return ::cuUserObjectCreate(
        o, nullptr, [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  });
  makers_["held"] = [this] {
    Ok(::cuGraphRetainUserObject(As<CUgraph>("graph"), As<CUuserObject>("object"), 1, 0));
    return Get("object");
  };
  Structure<CUDA_GRAPH_INSTANTIATE_PARAMS>("&instantiateparams", [] { return CUDA_GRAPH_INSTANTIATE_PARAMS{}; });
  Structure<CUgraphNodeParams>("&nodeparams_host", [this] {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_HOST;
    p.host = *As<CUDA_HOST_NODE_PARAMS*>("&hostparams");
    return p;
  });
  Structure<CUDA_HOST_NODE_PARAMS>("&hostparams", [] { return CUDA_HOST_NODE_PARAMS{[](void*) {}, nullptr}; });
  Structure<CUDA_MEMSET_NODE_PARAMS>(
      "&memsetparams", [this] { return CUDA_MEMSET_NODE_PARAMS{As<CUdeviceptr>("dptr"), 0, 1, 4, 16, 1}; });
  Structure<CUDA_KERNEL_NODE_PARAMS>("&kernelv2", [this] {
    return CUDA_KERNEL_NODE_PARAMS{As<CUfunction>("function"), 1,       1,       1,      1, 1, 1, 0,
                                   As<void**>("&parameters"),  nullptr, nullptr, nullptr};
  });
  Structure<CUDA_KERNEL_NODE_PARAMS_v1>("&kernelv1", [this] {
    return CUDA_KERNEL_NODE_PARAMS_v1{As<CUfunction>("function"), 1,      1, 1, 1, 1, 1, 0,
                                      As<void**>("&parameters"),  nullptr};
  });
  Structure<CUDA_MEM_ALLOC_NODE_PARAMS>("&allocparams", [] {
    CUDA_MEM_ALLOC_NODE_PARAMS p{};
    p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    p.bytesize = 4096;
    return p;
  });
  Structure<CUDA_BATCH_MEM_OP_NODE_PARAMS>("&batchparams", [this] {
    return CUDA_BATCH_MEM_OP_NODE_PARAMS{context_, 1, As<CUstreamBatchMemOpParams*>("&batchsteps"), 0};
  });
  Structure<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS>("&signalparams", [this] {
    return CUDA_EXT_SEM_SIGNAL_NODE_PARAMS{As<CUexternalSemaphore*>("&extsemlist"),
                                           As<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS*>("&signal"), 1};
  });
  Structure<CUDA_EXT_SEM_WAIT_NODE_PARAMS>("&waitparams", [this] {
    return CUDA_EXT_SEM_WAIT_NODE_PARAMS{As<CUexternalSemaphore*>("&extsemlist"),
                                         As<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*>("&wait"), 1};
  });
}

inline void CallObjects::FillNodes() {
  for (const char* name : {"node_empty", "node_empty2", "node_first"})
    Node(name, [](CUgraphNode* n, CUgraph g) { return ::cuGraphAddEmptyNode(n, g, nullptr, 0); });
  Node("node_second", [this](CUgraphNode* n, CUgraph g) {
    const auto first = As<CUgraphNode>("node_first");
    return ::cuGraphAddEmptyNode(n, g, &first, 1);
  });
  for (const char* name : {"node_empty", "node_empty2", "node_first", "node_second"})
    makers_[std::string("&") + name] = [this, name] { return Address(As<CUgraphNode>(name)); };
  Node("node_kernel", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddKernelNode_v2(n, g, nullptr, 0, As<CUDA_KERNEL_NODE_PARAMS*>("&kernelv2"));
  });
  Node("node_memcpy", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddMemcpyNode(n, g, nullptr, 0, As<CUDA_MEMCPY3D*>("&memcpy3d"), context_);
  });
  Node("node_memset", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddMemsetNode(n, g, nullptr, 0, As<CUDA_MEMSET_NODE_PARAMS*>("&memsetparams"), context_);
  });
  Node("node_host", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddHostNode(n, g, nullptr, 0, As<CUDA_HOST_NODE_PARAMS*>("&hostparams"));
  });
  Node("node_child", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddChildGraphNode(n, g, nullptr, 0, As<CUgraph>("graph2"));
  });
  Node("node_record", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddEventRecordNode(n, g, nullptr, 0, As<CUevent>("event"));
  });
  Node("node_wait",
       [this](CUgraphNode* n, CUgraph g) { return ::cuGraphAddEventWaitNode(n, g, nullptr, 0, As<CUevent>("event")); });
  Node("node_batch", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddBatchMemOpNode(n, g, nullptr, 0, As<CUDA_BATCH_MEM_OP_NODE_PARAMS*>("&batchparams"));
  });
  Node("node_signal", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddExternalSemaphoresSignalNode(n, g, nullptr, 0,
                                                    As<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS*>("&signalparams"));
  });
  Node("node_semwait", [this](CUgraphNode* n, CUgraph g) {
    return ::cuGraphAddExternalSemaphoresWaitNode(n, g, nullptr, 0, As<CUDA_EXT_SEM_WAIT_NODE_PARAMS*>("&waitparams"));
  });
  // Memory nodes stand in a graph of their own: one with them can be neither cloned nor updated.
  Object<CUgraphNode>("node_alloc", [this](CUgraphNode* n) {
    auto* p = As<CUDA_MEM_ALLOC_NODE_PARAMS*>("&allocparams");
    Ok(::cuGraphAddMemAllocNode(n, As<CUgraph>("memgraph"), nullptr, 0, p));
    values_["gptr"] = p->dptr;
    return CUDA_SUCCESS;
  });
  makers_["gptr"] = [this] {
    Get("node_alloc");
    return values_["gptr"];
  };
  Object<CUgraphNode>("node_free", [this](CUgraphNode* n) {
    return ::cuGraphAddMemFreeNode(n, As<CUgraph>("memgraph"), nullptr, 0, As<CUdeviceptr>("gptr"));
  });
}

inline void CallObjects::FillCopies() {
  auto both = [this](auto* d, const char* to, const char* from) {
    d->srcMemoryType = d->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    d->srcDevice = static_cast<decltype(d->srcDevice)>(Get(from));
    d->dstDevice = static_cast<decltype(d->dstDevice)>(Get(to));
    d->WidthInBytes = 16;
    d->Height = 2;
    d->srcPitch = d->dstPitch = 32;
  };
  Structure<CUDA_MEMCPY2D>("&memcpy2d", [both] {
    CUDA_MEMCPY2D d{};
    both(&d, "dptr", "dptr2");
    return d;
  });
  Structure<CUDA_MEMCPY2D_v1>("&memcpy2dv1", [both] {
    CUDA_MEMCPY2D_v1 d{};
    both(&d, "low", "low2");
    return d;
  });
  Structure<CUDA_MEMCPY3D>("&memcpy3d", [both] {
    CUDA_MEMCPY3D d{};
    both(&d, "dptr", "dptr2");
    d.Depth = 1;
    return d;
  });
  Structure<CUDA_MEMCPY3D_v1>("&memcpy3dv1", [both] {
    CUDA_MEMCPY3D_v1 d{};
    both(&d, "low", "low2");
    d.Depth = 1;
    return d;
  });
  Structure<CUDA_MEMCPY3D_PEER>("&memcpy3dpeer", [this, both] {
    CUDA_MEMCPY3D_PEER d{};
    both(&d, "dptr", "dptr2");
    d.Depth = 1;
    d.srcContext = d.dstContext = context_;
    return d;
  });
  Structure<CUDA_MEMCPY3D_BATCH_OP>("&batch3d", [this] {
    CUDA_MEMCPY3D_BATCH_OP op{};
    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.src.op.ptr.ptr = As<CUdeviceptr>("dptr2");
    op.dst.op.ptr.ptr = As<CUdeviceptr>("dptr");
    op.extent = {16, 2, 1};
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return op;
  });
  Structure<CUmemcpyAttributes>("&copyattributes", [] {
    CUmemcpyAttributes a{};
    a.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return a;
  });
}

inline void CallObjects::FillTextures() {
  Structure<CUDA_ARRAY_DESCRIPTOR>("&array2d", [] { return CUDA_ARRAY_DESCRIPTOR{16, 16, CU_AD_FORMAT_FLOAT, 1}; });
  Structure<CUDA_ARRAY_DESCRIPTOR_v1>("&arrayv1", [] {
    return CUDA_ARRAY_DESCRIPTOR_v1{16, 16, CU_AD_FORMAT_FLOAT, 1};
  });
  Structure<CUDA_ARRAY3D_DESCRIPTOR>("&array3d",
                                     [] { return CUDA_ARRAY3D_DESCRIPTOR{16, 16, 4, CU_AD_FORMAT_FLOAT, 1, 0}; });
  Structure<CUDA_ARRAY3D_DESCRIPTOR_v1>("&array3dv1",
                                        [] { return CUDA_ARRAY3D_DESCRIPTOR_v1{16, 16, 4, CU_AD_FORMAT_FLOAT, 1, 0}; });
  Object<CUarray>("array", [](CUarray* a) {
    const CUDA_ARRAY3D_DESCRIPTOR d = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 2};  // for surfaces too
    return ::cuArray3DCreate_v2(a, &d);
  });
  for (const char* name : {"line", "line2"}) {
    Object<CUarray>(name, [](CUarray* a) {
      const CUDA_ARRAY_DESCRIPTOR d = {64, 0, CU_AD_FORMAT_FLOAT, 1};
      return ::cuArrayCreate_v2(a, &d);
    });
  }
  Object<CUmipmappedArray>("mipmap", [this](CUmipmappedArray* m) {
    return ::cuMipmappedArrayCreate(m, As<CUDA_ARRAY3D_DESCRIPTOR*>("&array3d"), 2);
  });
  Structure<CUDA_RESOURCE_DESC>("&surfdesc", [this] {
    CUDA_RESOURCE_DESC d{};
    d.resType = CU_RESOURCE_TYPE_ARRAY;
    d.res.array.hArray = As<CUarray>("array");
    return d;
  });
  Structure<CUDA_RESOURCE_DESC>("&texresource", [this] {
    CUDA_RESOURCE_DESC d{};
    d.resType = CU_RESOURCE_TYPE_LINEAR;
    d.res.linear.devPtr = As<CUdeviceptr>("dptr");
    d.res.linear.format = CU_AD_FORMAT_FLOAT;
    d.res.linear.numChannels = 1;
    d.res.linear.sizeInBytes = 4096;
    return d;
  });
  Structure<CUDA_TEXTURE_DESC>("&texdesc", [] { return CUDA_TEXTURE_DESC{}; });
  Object<CUtexObject>("tex", [this](CUtexObject* t) {
    return ::cuTexObjectCreate(t, As<CUDA_RESOURCE_DESC*>("&texresource"), As<CUDA_TEXTURE_DESC*>("&texdesc"), nullptr);
  });
  Object<CUsurfObject>(
      "surf", [this](CUsurfObject* s) { return ::cuSurfObjectCreate(s, As<CUDA_RESOURCE_DESC*>("&surfdesc")); });
  Object<CUtexref>("texref", [](CUtexref* t) { return ::cuTexRefCreate(t); });
}

inline void CallObjects::FillSharing() {
  Structure<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>("&extmemdesc", [this] {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d{};
    d.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    d.handle.fd = File(4096);
    d.size = 4096;
    return d;
  });
  Structure<CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC>("&extsemdesc", [this] {
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC d{};
    d.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    d.handle.fd = File(8);
    return d;
  });
  Object<CUexternalMemory>("extmem", [this](CUexternalMemory* m) {
    return ::cuImportExternalMemory(m, As<CUDA_EXTERNAL_MEMORY_HANDLE_DESC*>("&extmemdesc"));
  });
  Object<CUexternalSemaphore>("extsem", [this](CUexternalSemaphore* s) {
    return ::cuImportExternalSemaphore(s, As<CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC*>("&extsemdesc"));
  });
  makers_["&extsemlist"] = [this] { return Address(As<CUexternalSemaphore>("extsem")); };
  Structure<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>("&signal", [] { return CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS{}; });
  Structure<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>("&wait", [] { return CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS{}; });
  Structure<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>("&extbuffer", [] {
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC d{};
    d.size = 4096;
    return d;
  });
  Structure<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>("&extmipmap", [] {
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC d{};
    d.arrayDesc = {16, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    d.numLevels = 1;
    return d;
  });
}

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_CALLS_OBJECTS_H_
