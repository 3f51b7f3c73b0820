// How one tells that a descriptor with which memory can be imported is still open somewhere. It carries a lock
// (F_OFD_SETLK, F_RDLCK) on the first byte of its file; the lock belongs to the open file description, so it follows
// every copy, sent ones too, and goes with the last. Whoever has the file open otherwise can look. No state; any
// thread.
#ifndef METE_EMULATOR_ENGINE_EXPORT_LOCK_H_
#define METE_EMULATOR_ENGINE_EXPORT_LOCK_H_

#include <fcntl.h>
#include <unistd.h>

namespace mete::emulator {

inline struct flock ExportLock(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

inline bool LockExported(int descriptor) {
  struct flock lock = ExportLock(F_RDLCK);
  return fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

// False for what is no file in memory; `descriptor` itself does not count.
inline bool HasExported(int descriptor) {
  if (fcntl(descriptor, F_GET_SEALS) < 0) return false;
  struct flock lock = ExportLock(F_WRLCK);
  return fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_EXPORT_LOCK_H_
