// Package cuda is the program of the GPU check (see package gpucheck): it opens the driver's CUDA library at run time
// and lets every GPU store, copy and compute. It is a program of its own because the library may hang or crash.
package cuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "driver.h"

static void *library;

#define X(name, symbol, parameters) static mu##name *p##name;
MU_FUNCTIONS(X)
#undef X

// open_library returns what is missing, NULL if all functions were found.
static const char *open_library(const char *path) {
	library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		return dlerror();
#define X(name, symbol, parameters)                                                                                    \
	p##name = (mu##name *)dlsym(library, #symbol);                                                                 \
	if (!p##name)                                                                                                  \
		return #symbol " is not in the library";
	MU_FUNCTIONS(X)
#undef X
	// Of a MIG device, only the newer version (CUDA 11.4) returns its own UUID and not its GPU's.
	muDeviceGetUuid *newer = (muDeviceGetUuid *)dlsym(library, "cuDeviceGetUuid_v2");
	if (newer)
		pDeviceGetUuid = newer;
	return NULL;
}

static void preload(const char *path) { dlopen(path, RTLD_NOW | RTLD_GLOBAL); }

static muResult mu_init(void) { return pInit(0); }
static muResult mu_version(int *v) { return pDriverGetVersion(v); }
static muResult mu_name(muResult e, const char **t) { return pGetErrorName(e, t); }
static muResult mu_text(muResult e, const char **t) { return pGetErrorString(e, t); }
static muResult mu_count(int *n) { return pDeviceGetCount(n); }
static muResult mu_device(muDevice *d, int i) { return pDeviceGet(d, i); }
static muResult mu_device_name(char *s, int n, muDevice d) { return pDeviceGetName(s, n, d); }
static muResult mu_device_uuid(muUUID *u, muDevice d) { return pDeviceGetUuid(u, d); }
static muResult mu_attribute(int *v, int a, muDevice d) { return pDeviceGetAttribute(v, a, d); }
static muResult mu_create(muContext *c, muDevice d) { return pCtxCreate(c, MU_CTX_SCHED_BLOCKING_SYNC, d); }
static muResult mu_primary(muContext *c, muDevice d) { return pDevicePrimaryCtxRetain(c, d); }
static muResult mu_current(muContext c) { return pCtxSetCurrent(c); }
static muResult mu_synchronize(void) { return pCtxSynchronize(); }
static muResult mu_alloc(muPointer *p, size_t n) { return pMemAlloc(p, n); }
static muResult mu_free(muPointer p) { return pMemFree(p); }
static muResult mu_to(muPointer to, const void *from, size_t n) { return pMemcpyHtoD(to, from, n); }
static muResult mu_from(void *to, muPointer from, size_t n) { return pMemcpyDtoH(to, from, n); }
static muResult mu_peer(muPointer to, muContext tc, muPointer from, muContext fc, size_t n) {
	return pMemcpyPeer(to, tc, from, fc, n);
}
static muResult mu_peer_async(muPointer to, muContext tc, muPointer from, muContext fc, size_t n, muStream s) {
	return pMemcpyPeerAsync(to, tc, from, fc, n, s);
}
static muResult mu_stream(muStream *s) { return pStreamCreate(s, MU_STREAM_NON_BLOCKING); }
static muResult mu_await(muStream s) { return pStreamSynchronize(s); }
static muResult mu_event(muEvent *e) { return pEventCreate(e, 0); }
static muResult mu_record(muEvent e, muStream s) { return pEventRecord(e, s); }
static muResult mu_elapsed(float *ms, muEvent start, muEvent end) { return pEventElapsedTime(ms, start, end); }
static muResult mu_can_access(int *can, muDevice d, muDevice peer) { return pDeviceCanAccessPeer(can, d, peer); }
static muResult mu_enable(muContext peer) { return pCtxEnablePeerAccess(peer, 0); }
static muResult mu_disable(muContext peer) { return pCtxDisablePeerAccess(peer); }
static muResult mu_module(muModule *m, const void *image) { return pModuleLoadData(m, image); }
static muResult mu_function(muFunction *f, muModule m, const char *name) { return pModuleGetFunction(f, m, name); }

// fill(out, count, seed)
static muResult mu_fill(muFunction f, unsigned blocks, unsigned threads, muPointer out, unsigned count, unsigned seed) {
	void *args[] = {&out, &count, &seed};
	return pLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, NULL, args, NULL);
}

// work(out, rounds)
static muResult mu_work(muFunction f, unsigned blocks, unsigned threads, muPointer out, unsigned rounds) {
	void *args[] = {&out, &rounds};
	return pLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, NULL, args, NULL);
}
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// Attributes of devices.
const (
	attrClockKHz = C.MU_ATTRIBUTE_CLOCK_RATE
	attrSMs      = C.MU_ATTRIBUTE_MULTIPROCESSOR_COUNT
	attrWatchdog = C.MU_ATTRIBUTE_KERNEL_EXEC_TIMEOUT
	attrMajor    = C.MU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
	attrMinor    = C.MU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
)

type (
	attr    = C.int
	device  = C.muDevice
	context = C.muContext
	pointer = C.muPointer
	module  = C.muModule
	kernel  = C.muFunction
	stream  = C.muStream
	event   = C.muEvent
)

// callError describes a call of CUDA that failed.
type callError struct {
	call string
	code int
	text string
}

// failure is the error as a Failure of a step on GPUs.
func (e *callError) failure(step string, gpus ...string) *gpucheck.Failure {
	return &gpucheck.Failure{Kind: gpucheck.KindCUDA, GPUs: gpus, Step: step, Call: e.call, Code: e.code, Text: e.text}
}

// check returns the error of a call. CUDA describes its codes also before cuInit has succeeded.
func check(call string, code C.muResult) *callError {
	calls.add(call, int(code))
	if code == 0 {
		return nil
	}
	e := &callError{call: call, code: int(code)}
	var name, text *C.char
	if C.mu_name(code, &name) == 0 && name != nil {
		e.text = C.GoString(name)
	}
	if C.mu_text(code, &text) == 0 && text != nil {
		e.text += ": " + C.GoString(text)
	}
	if e.text == "" {
		e.text = "the driver has no name for this code"
	}
	return e
}

// open loads the library at path, after those that it loads itself by name.
func open(path string, before []string) error {
	for _, p := range before {
		s := C.CString(p)
		C.preload(s)
		C.free(unsafe.Pointer(s))
	}
	s := C.CString(path)
	defer C.free(unsafe.Pointer(s))
	if missing := C.open_library(s); missing != nil {
		return fmt.Errorf("%s", C.GoString(missing))
	}
	return nil
}

func initialise() *callError { return check("cuInit", C.mu_init()) }

func version() (int, *callError) {
	var v C.int
	err := check("cuDriverGetVersion", C.mu_version(&v))
	return int(v), err
}

// devices returns every device that the driver has here.
func devices() ([]device, *callError) {
	var n C.int
	if err := check("cuDeviceGetCount", C.mu_count(&n)); err != nil {
		return nil, err
	}
	out := make([]device, n)
	for i := range out {
		if err := check("cuDeviceGet", C.mu_device(&out[i], C.int(i))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func uuidOf(d device) (string, *callError) {
	var u C.muUUID
	if err := check("cuDeviceGetUuid", C.mu_device_uuid(&u, d)); err != nil {
		return "", err
	}
	b := C.GoBytes(unsafe.Pointer(&u), 16)
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}

func nameOf(d device) (string, *callError) {
	var b [256]C.char
	err := check("cuDeviceGetName", C.mu_device_name(&b[0], C.int(len(b)), d))
	return C.GoString(&b[0]), err
}

func attribute(d device, which attr) (int, *callError) {
	var v C.int
	err := check("cuDeviceGetAttribute", C.mu_attribute(&v, which, d))
	return int(v), err
}

func createContext(d device) (context, *callError) {
	var c context
	err := check("cuCtxCreate", C.mu_create(&c, d))
	return c, err
}

// primaryContext returns the context that a device's users share by default, as NCCL does.
func primaryContext(d device) (context, *callError) {
	var c context
	err := check("cuDevicePrimaryCtxRetain", C.mu_primary(&c, d))
	return c, err
}

// use makes a context the calling thread's.
func use(c context) *callError { return check("cuCtxSetCurrent", C.mu_current(c)) }

func synchronize() *callError { return check("cuCtxSynchronize", C.mu_synchronize()) }

func alloc(bytes int) (pointer, *callError) {
	var p pointer
	err := check("cuMemAlloc", C.mu_alloc(&p, C.size_t(bytes)))
	return p, err
}

func free(p pointer) *callError { return check("cuMemFree", C.mu_free(p)) }

func toGPU(to pointer, from []uint32) *callError {
	return check("cuMemcpyHtoD", C.mu_to(to, unsafe.Pointer(&from[0]), C.size_t(4*len(from))))
}

func fromGPU(to []uint32, from pointer) *callError {
	return check("cuMemcpyDtoH", C.mu_from(unsafe.Pointer(&to[0]), from, C.size_t(4*len(to))))
}

func toPeer(to pointer, toContext context, from pointer, fromContext context, bytes int) *callError {
	return check("cuMemcpyPeer", C.mu_peer(to, toContext, from, fromContext, C.size_t(bytes)))
}

// toPeerLater queues a copy to another GPU in a stream of the sending GPU's context.
func toPeerLater(to pointer, toContext context, from pointer, fromContext context, bytes int, in stream) *callError {
	return check("cuMemcpyPeerAsync", C.mu_peer_async(to, toContext, from, fromContext, C.size_t(bytes), in))
}

// newStream makes a stream in the calling thread's context.
func newStream() (stream, *callError) {
	var s stream
	err := check("cuStreamCreate", C.mu_stream(&s))
	return s, err
}

// await waits until a stream has done all that was queued in it.
func await(s stream) *callError { return check("cuStreamSynchronize", C.mu_await(s)) }

// newEvent makes an event in the calling thread's context.
func newEvent() (event, *callError) {
	var e event
	err := check("cuEventCreate", C.mu_event(&e))
	return e, err
}

// record lets an event be the moment at which the stream has done what was queued in it before.
func record(e event, in stream) *callError { return check("cuEventRecord", C.mu_record(e, in)) }

// elapsed returns the time between two events that have happened, by the GPU's clock.
func elapsed(start, end event) (time.Duration, *callError) {
	var ms C.float
	err := check("cuEventElapsedTime", C.mu_elapsed(&ms, start, end))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

func canAccess(d, peer device) (bool, *callError) {
	var can C.int
	err := check("cuDeviceCanAccessPeer", C.mu_can_access(&can, d, peer))
	return can != 0, err
}

// enablePeer lets the calling thread's context address the memory of another one. It reports whether it can: a GPU that
// is not behind NVSwitches has eight peers at most at a time, and another program's count too.
func enablePeer(peer context) (bool, *callError) {
	err := check("cuCtxEnablePeerAccess", C.mu_enable(peer))
	switch {
	case err == nil, err.code == C.MU_ERROR_PEER_ACCESS_ALREADY_ENABLED:
		return true, nil
	case err.code == C.MU_ERROR_TOO_MANY_PEERS:
		return false, nil
	}
	return false, err
}

// disablePeer ends what enablePeer began.
func disablePeer(peer context) *callError { return check("cuCtxDisablePeerAccess", C.mu_disable(peer)) }

// kernels compiles the program's kernels for the calling thread's context.
func kernels() (fill, work kernel, err *callError) {
	image := C.CString(ptx)
	defer C.free(unsafe.Pointer(image))
	var m module
	if err = check("cuModuleLoadData", C.mu_module(&m, unsafe.Pointer(image))); err != nil {
		return nil, nil, err
	}
	for name, k := range map[string]*kernel{"fill": &fill, "work": &work} {
		s := C.CString(name)
		err = check("cuModuleGetFunction", C.mu_function(k, m, s))
		C.free(unsafe.Pointer(s))
		if err != nil {
			return nil, nil, err
		}
	}
	return fill, work, nil
}

func launchFill(k kernel, out pointer, count int, seed uint32) *callError {
	blocks := (count + threads - 1) / threads
	return check("cuLaunchKernel", C.mu_fill(k, C.uint(blocks), threads, out, C.uint(count), C.uint(seed)))
}

func launchWork(k kernel, out pointer, blocks int, rounds uint32) *callError {
	return check("cuLaunchKernel", C.mu_work(k, C.uint(blocks), threads, out, C.uint(rounds)))
}
