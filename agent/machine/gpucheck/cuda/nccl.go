package cuda

/*
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include "nccl.h"

#define X(name, symbol, result, parameters) static mn##name *q##name;
MN_FUNCTIONS(X)
#undef X
static const char *(*qGetLastError)(mnComm); // NCCL 2.13 and later

// open_nccl returns what is missing, NULL if all functions were found.
static const char *open_nccl(const char *path) {
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		return dlerror();
#define X(name, symbol, result, parameters)                                                                            \
	q##name = (mn##name *)dlsym(library, #symbol);                                                                 \
	if (!q##name)                                                                                                  \
		return #symbol " is not in the library";
	MN_FUNCTIONS(X)
#undef X
	qGetLastError = (const char *(*)(mnComm))dlsym(library, "ncclGetLastError");
	return NULL;
}

static mnResult mn_version(int *v) { return qGetVersion(v); }
static mnResult mn_id(mnUniqueId *id) { return qGetUniqueId(id); }
static mnResult mn_init(mnComm *c, int ranks, const mnUniqueId *id, int rank) {
	return qCommInitRank(c, ranks, *id, rank);
}
static mnResult mn_start(void) { return qGroupStart(); }
static mnResult mn_end(void) { return qGroupEnd(); }
static mnResult mn_reduce(unsigned long long from, unsigned long long to, size_t count, mnComm c) {
	return qAllReduce((const void *)(uintptr_t)from, (void *)(uintptr_t)to, count, MN_UINT32, MN_SUM, c, NULL);
}
static const char *mn_text(mnResult r) { return qGetErrorString(r); }
static const char *mn_last(void) { return qGetLastError ? qGetLastError(NULL) : NULL; }
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// uniqueID is what NCCL's ranks find each other by.
type uniqueID [128]byte

type communicator = C.mnComm

// openNCCL loads the library at path.
func openNCCL(path string) error {
	s := C.CString(path)
	defer C.free(unsafe.Pointer(s))
	if missing := C.open_nccl(s); missing != nil {
		return fmt.Errorf("%s", C.GoString(missing))
	}
	return nil
}

// checkNCCL returns the error of a call of NCCL's.
func checkNCCL(call string, code C.mnResult) *callError {
	calls.add(call, int(code))
	if code == C.MN_SUCCESS {
		return nil
	}
	e := &callError{call: call, code: int(code), text: C.GoString(C.mn_text(code))}
	if last := C.mn_last(); last != nil {
		if text := C.GoString(last); text != "" {
			e.text += ": " + text
		}
	}
	return e
}

// ncclVersion returns the library's version as NCCL codes it: 22105 is 2.21.5.
func ncclVersion() (int, *callError) {
	var v C.int
	err := checkNCCL("ncclGetVersion", C.mn_version(&v))
	return int(v), err
}

func newUniqueID() (out uniqueID, err *callError) {
	var u C.mnUniqueId
	err = checkNCCL("ncclGetUniqueId", C.mn_id(&u))
	copy(out[:], C.GoBytes(unsafe.Pointer(&u), C.int(len(out))))
	return out, err
}

// group makes calls of several ranks of this process begin together, as NCCL requires.
func group(do func() *callError) *callError {
	if err := checkNCCL("ncclGroupStart", C.mn_start()); err != nil {
		return err
	}
	err := do()
	if end := checkNCCL("ncclGroupEnd", C.mn_end()); err == nil {
		err = end
	}
	return err
}

// initRank makes the calling thread's context a rank of a communicator. Within a group, the communicator is ready at
// the group's end, and is stored at c then.
func initRank(c *communicator, ranks int, u uniqueID, rank int) *callError {
	return checkNCCL("ncclCommInitRank", C.mn_init(c, C.int(ranks), (*C.mnUniqueId)(unsafe.Pointer(&u)), C.int(rank)))
}

// newCommunicators returns memory of C's for n communicators, since NCCL keeps its address until a group's end.
func newCommunicators(n int) []communicator {
	p := C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(communicator(nil))))
	return unsafe.Slice((*communicator)(p), n)
}

// allReduce adds words of 32 bits over all ranks. It returns when the work is queued.
func allReduce(from, to pointer, words int, c communicator) *callError {
	return checkNCCL("ncclAllReduce", C.mn_reduce(C.ulonglong(from), C.ulonglong(to), C.size_t(words), c))
}
