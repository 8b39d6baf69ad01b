/*
 * A fake libnccl.so.2 for tests, for the GPUs of the fake libcuda: it adds up over TCP what lies in the host's memory,
 * between processes too, and logs its transport as NCCL does. The file that drives the fake CUDA library drives this one:
 *
 *   nccl version N              ncclGetVersion says N
 *   nccl error FUNCTION CODE    the function returns CODE
 *   nccl hang FUNCTION          it does not return
 *   nccl crash FUNCTION         it ends the process
 *   nccl wrong                  one bit of a sum is wrong
 *   nccl noib                   there is no RDMA device that it can open
 *   nccl socket                 it sends over TCP whatever NCCL_NET says
 *
 * The declarations are the check's own (agent/machine/gpucheck/cuda/nccl.h).
 */
#include "../../cuda/nccl.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_LOCAL = 16, MAX_NODES = 64 };

static struct { char kind[16], function[40]; int code; } faults[8];
static int fault_count;

__attribute__((constructor)) static void read_profile(void) {
	const char *path = getenv("MUSTER_FAKE_CUDA");
	FILE *f = fopen(path ? path : "/run/muster/gpucheck/gpus", "r");
	char line[256], a[16], b[16], c[40], d[16];
	while (f && fgets(line, sizeof line, f)) {
		a[0] = b[0] = c[0] = d[0] = 0;
		if (sscanf(line, "%15s %15s %39s %15s", a, b, c, d) >= 2 && !strcmp(a, "nccl") && fault_count < 8) {
			strcpy(faults[fault_count].kind, b);
			strcpy(faults[fault_count].function, c);
			faults[fault_count++].code = atoi(d);
		}
	}
	if (f)
		fclose(f);
}

static bool has(const char *kind, const char *function, int *code) {
	for (int i = 0; i < fault_count; i++)
		if (!strcmp(faults[i].kind, kind) && (!function || !strcmp(faults[i].function, function))) {
			if (code)
				*code = faults[i].code;
			return true;
		}
	return false;
}

static void say(const char *level, const char *text) {
	const char *debug = getenv("NCCL_DEBUG");
	if (!debug || (strcmp(debug, "INFO") && strcmp(level, "WARN")))
		return;
	printf("fake:%d:%d [0] NCCL %s %s\n", getpid(), getpid(), level, text);
	fflush(stdout);
}

static mnResult enter(const char *function) {
	int code = 0;
	if (has("hang", function, NULL))
		for (;;)
			pause();
	if (has("crash", function, NULL))
		abort();
	if (has("error", function, &code)) {
		say("WARN", "the test wants this call to fail");
		return code;
	}
	return MN_SUCCESS;
}
#define ENTER                                                                                                          \
	do {                                                                                                           \
		mnResult result_ = enter(__func__);                                                                    \
		if (result_)                                                                                           \
			return result_;                                                                                \
	} while (0)

static bool all(int fd, void *p, size_t n, bool out) {
	for (size_t done = 0; done < n;) {
		ssize_t k = out ? send(fd, (char *)p + done, n - done, MSG_NOSIGNAL) : recv(fd, (char *)p + done, n - done, 0);
		if (k <= 0)
			return false;
		done += (size_t)k;
	}
	return true;
}

/* The root of one id: it waits until all ranks have come, and adds up what they send. */
struct root { int fd; };

static void *serve_ranks(struct root *r, int fds[MAX_NODES], int *count) {
	int n = 0;
	for (uint32_t come = 0, want = 1; come < want && n < MAX_NODES;) {
		uint32_t hello[2]; /* ranks here, ranks in total */
		int fd = accept(r->fd, NULL, NULL);
		if (fd < 0 || !all(fd, hello, sizeof hello, false))
			continue;
		fds[n++] = fd;
		*count = n;
		come += hello[0], want = hello[1];
	}
	close(r->fd);
	for (int i = 0; i < n; i++)
		if (!all(fds[i], "g", 1, true))
			return NULL;
	for (;;) {
		uint64_t words = 0;
		uint32_t *sum = NULL, *one = NULL;
		for (int i = 0; i < n; i++) {
			if (!all(fds[i], &words, sizeof words, false))
				return NULL;
			if (!sum)
				sum = calloc(words, 4), one = malloc(words * 4);
			if (!all(fds[i], one, words * 4, false))
				return NULL;
			for (uint64_t k = 0; k < words; k++)
				sum[k] += one[k];
		}
		for (int i = 0; i < n; i++)
			if (!all(fds[i], sum, words * 4, true))
				return NULL;
		free(sum);
		free(one);
	}
}

static void *serve(void *arg) {
	int fds[MAX_NODES], n = 0;
	serve_ranks(arg, fds, &n);
	for (int i = 0; i < n; i++) /* one that left ends the others' work */
		close(fds[i]);
	free(arg);
	return NULL;
}

struct ncclComm { int fd, ranks, rank; };

struct address { uint32_t ip; uint16_t port; }; /* in the id, in network order */

static uint32_t own_address(void) {
	const char *name = getenv("NCCL_SOCKET_IFNAME");
	uint32_t ip = htonl(INADDR_LOOPBACK);
	struct ifaddrs *list;
	if (!name || getifaddrs(&list))
		return ip;
	name += *name == '=';
	for (struct ifaddrs *i = list; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !strcmp(i->ifa_name, name))
			ip = ((struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr;
	freeifaddrs(list);
	return ip;
}

mnGetVersion ncclGetVersion;
mnResult ncclGetVersion(int *version) {
	ENTER;
	*version = 22105;
	for (int i = 0; i < fault_count; i++)
		if (!strcmp(faults[i].kind, "version"))
			*version = atoi(faults[i].function);
	return MN_SUCCESS;
}

mnGetUniqueId ncclGetUniqueId;
mnResult ncclGetUniqueId(mnUniqueId *id) {
	ENTER;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = own_address()};
	socklen_t size = sizeof at;
	struct root *r = malloc(sizeof *r);
	pthread_t thread;
	r->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(r->fd, (struct sockaddr *)&at, size) || listen(r->fd, MAX_NODES) ||
	    getsockname(r->fd, (struct sockaddr *)&at, &size) || pthread_create(&thread, NULL, serve, r))
		return MN_SYSTEM_ERROR;
	memset(id, 0, sizeof *id);
	struct address a = {at.sin_addr.s_addr, at.sin_port};
	memcpy(id->internal, &a, sizeof a);
	return MN_SUCCESS;
}

static struct { mnComm *comm; mnUniqueId id; int ranks, rank; } inits[MAX_LOCAL];
static struct { const uint32_t *from; uint32_t *to; size_t count; mnComm comm; } sums[MAX_LOCAL];
static int init_count, sum_count, depth;

static mnResult transport(int ranks, int local) {
	const char *net = getenv("NCCL_NET"), *hca = getenv("NCCL_IB_HCA");
	char line[256];
	bool ib = !has("noib", NULL, NULL);
	if (has("socket", NULL, NULL))
		ib = false, net = "Socket";
	if (ib && (!hca || !*hca))
		hca = "=mlx5_0:1";
	if (!ib) {
		say("INFO", "NET/IB : No device found.");
		say("INFO", "Failed to initialize NET plugin IB");
		if (net && !strcmp(net, "IB")) {
			say("WARN", "Failed to initialize any NET plugin");
			return MN_INVALID_USAGE;
		}
	} else {
		snprintf(line, sizeof line, "NET/IB : Using [0]%.100s/IB [RO]; OOB ovl0:10.77.0.1<0>", hca + (*hca == '='));
		say("INFO", line);
	}
	say("INFO", ib ? "Using network IB" : "Using network Socket");
	for (int i = 0; i < local && ranks > local; i++) {
		snprintf(line, sizeof line, "Channel 0%d/0 : %d[%d] -> %d[%d] [send] via NET/%s/%d%s", i, i, i, i + local, i,
		         ib ? "IB" : "Socket", i % 2, ib ? "/GDRDMA" : "");
		say("INFO", line);
	}
	return MN_SUCCESS;
}

static mnResult start(void) {
	if (init_count == 0)
		return MN_SUCCESS;
	mnResult result = transport(inits[0].ranks, init_count);
	if (result)
		return result;
	struct address a;
	memcpy(&a, inits[0].id.internal, sizeof a);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = a.ip, .sin_port = a.port};
	uint32_t hello[2] = {(uint32_t)init_count, (uint32_t)inits[0].ranks};
	char go;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) || !all(fd, hello, sizeof hello, true) || !all(fd, &go, 1, false)) {
		say("WARN", "socketStartConnect: Connect failed : Connection refused");
		return MN_SYSTEM_ERROR;
	}
	for (int i = 0; i < init_count; i++) {
		struct ncclComm *c = malloc(sizeof *c);
		*c = (struct ncclComm){fd, inits[i].ranks, inits[i].rank};
		*inits[i].comm = c;
	}
	init_count = 0;
	return MN_SUCCESS;
}

static mnResult add(void) {
	if (sum_count == 0)
		return MN_SUCCESS;
	uint64_t count = sums[0].count;
	uint32_t *sum = calloc(count, 4);
	for (int i = 0; i < sum_count; i++)
		for (uint64_t k = 0; k < count; k++)
			sum[k] += sums[i].from[k];
	int fd = sums[0].comm->fd;
	bool ok = all(fd, &count, sizeof count, true) && all(fd, sum, count * 4, true) && all(fd, sum, count * 4, false);
	if (has("wrong", NULL, NULL) && sums[0].comm->ranks > sum_count)
		sum[count / 2] ^= 4;
	for (int i = 0; i < sum_count; i++)
		memcpy(sums[i].to, sum, count * 4);
	free(sum);
	sum_count = 0;
	if (!ok)
		say("WARN", "NET/IB : Got completion from peer with status=12 opcode=0 len=0 vendor err 129 (Send)");
	return ok ? MN_SUCCESS : MN_REMOTE_ERROR;
}

mnGroupStart ncclGroupStart;
mnResult ncclGroupStart(void) {
	ENTER;
	depth++;
	return MN_SUCCESS;
}

mnGroupEnd ncclGroupEnd;
mnResult ncclGroupEnd(void) {
	ENTER;
	if (--depth > 0)
		return MN_SUCCESS;
	mnResult result = start();
	return result ? result : add();
}

mnCommInitRank ncclCommInitRank;
mnResult ncclCommInitRank(mnComm *comm, int ranks, mnUniqueId id, int rank) {
	ENTER;
	if (!comm || rank < 0 || rank >= ranks || init_count == MAX_LOCAL)
		return MN_INVALID_ARGUMENT;
	inits[init_count].comm = comm, inits[init_count].id = id;
	inits[init_count].ranks = ranks, inits[init_count++].rank = rank;
	return depth ? MN_SUCCESS : start();
}

mnAllReduce ncclAllReduce;
mnResult ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, mnComm comm, void *stream) {
	ENTER;
	if (type != MN_UINT32 || operation != MN_SUM || stream || !comm || sum_count == MAX_LOCAL)
		return MN_INVALID_ARGUMENT;
	sums[sum_count].from = from, sums[sum_count].to = to, sums[sum_count].count = count;
	sums[sum_count++].comm = comm;
	return depth ? MN_SUCCESS : add();
}

mnGetErrorString ncclGetErrorString;
const char *ncclGetErrorString(mnResult result) {
	switch (result) {
	case MN_SUCCESS: return "no error";
	case MN_UNHANDLED_CUDA_ERROR: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
	case MN_SYSTEM_ERROR: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
	case MN_INTERNAL_ERROR: return "internal error - please report this issue to the NCCL developers";
	case MN_INVALID_ARGUMENT: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
	case MN_INVALID_USAGE: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
	case MN_REMOTE_ERROR: return "remote process exited or there was a network error";
	}
	return "unknown result code";
}
