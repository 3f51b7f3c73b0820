// Tests of the proxies need a fresh process each, with the proxy found by a real loader. A test binary starts itself
// again as a tenant:
//
//   TENANT(Name) { REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS); … }     // runs in the new process
//   TEST(Suite, Name) { StandIn broker(Options()); EXPECT_EQ(RunTenant(broker, "Name"), 0); }
//
// tenant.cc has the main() for both. Not linked into anything that ships.
#ifndef METE_INTERCEPTOR_TESTING_TENANT_H_
#define METE_INTERCEPTOR_TESTING_TENANT_H_

#include <cstdio>
#include <cstdlib>
#include <string>

#include "interceptor/cuda_api.h"
#include "interceptor/testing/stand_in.h"

namespace mete::interceptor::testing {

// Paths come from the build.
StandInOptions Options();

// Starts this binary as the tenant NAME of the broker and waits for it: its exit status, or 128 plus its signal.
int RunTenant(const StandIn& broker, const char* name);
// The same without waiting: the pid.
int StartTenant(const StandIn& broker, const char* name);
int WaitTenant(int pid);
// What the last tenant that RunTenant waited for wrote to standard error.
std::string LastErrors();

// In the tenant: the grant directory, and symbols of the proxy opened from there.
const std::string& Directory();
void* Proxy();
void* Symbol(const char* name);

struct RegisterTenant {
  RegisterTenant(const char* name, void (*body)());
};

}  // namespace mete::interceptor::testing

#define TENANT(name)                                                                              \
  static void Tenant##name();                                                                     \
  static const ::mete::interceptor::testing::RegisterTenant register_##name(#name, Tenant##name); \
  static void Tenant##name()

#define REQUIRE(condition)                                                    \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      _Exit(1);                                                               \
    }                                                                         \
  } while (false)

#define CU(function) (reinterpret_cast<decltype(&::function)>(::mete::interceptor::testing::Symbol(#function)))

#endif  // METE_INTERCEPTOR_TESTING_TENANT_H_
