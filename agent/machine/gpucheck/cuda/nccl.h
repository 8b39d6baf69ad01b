/*
 * The part of NCCL that the measurement uses. The library libnccl.so.2 is opened at run time, so nothing of NCCL is needed
 * to build. Declared as in NVIDIA's nccl.h (github.com/NVIDIA/nccl, src/nccl.h.in at 021e8045): ncclUniqueId is 128
 * bytes passed by value, enums are passed as int. The fake library (agent/machine/gpucheck/fakecuda) is built from this
 * file too.
 */
#ifndef MUSTER_NCCL_H
#define MUSTER_NCCL_H

#include <stddef.h>

typedef int mnResult;
typedef struct { char internal[128]; } mnUniqueId;
typedef struct ncclComm *mnComm;

enum {
	MN_SUCCESS = 0, /* ncclResult_t */
	MN_UNHANDLED_CUDA_ERROR = 1,
	MN_SYSTEM_ERROR = 2,
	MN_INTERNAL_ERROR = 3,
	MN_INVALID_ARGUMENT = 4,
	MN_INVALID_USAGE = 5,
	MN_REMOTE_ERROR = 6,
	MN_UINT32 = 3, /* ncclDataType_t */
	MN_SUM = 0, /* ncclRedOp_t */
};

/* X(function without "nccl", exported symbol, result, parameters); a stream is a CUstream, NULL the default one */
#define MN_FUNCTIONS(X)                                                                                                \
	X(GetVersion, ncclGetVersion, mnResult, (int *version))                                                        \
	X(GetUniqueId, ncclGetUniqueId, mnResult, (mnUniqueId *id))                                                    \
	X(CommInitRank, ncclCommInitRank, mnResult, (mnComm *comm, int ranks, mnUniqueId id, int rank))                \
	X(GroupStart, ncclGroupStart, mnResult, (void))                                                                \
	X(GroupEnd, ncclGroupEnd, mnResult, (void))                                                                    \
	X(AllReduce, ncclAllReduce, mnResult,                                                                          \
	  (const void *from, void *to, size_t count, int type, int operation, mnComm comm, void *stream))              \
	X(GetErrorString, ncclGetErrorString, const char *, (mnResult result))

#define X(name, symbol, result, parameters) typedef result mn##name parameters;
MN_FUNCTIONS(X)
#undef X

#endif
