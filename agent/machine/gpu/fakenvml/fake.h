/*
 * The fake NVML library: libnvidia-ml.so.1 for machines without an NVIDIA GPU.
 *
 * It is loaded by the real go-nvml in the probe child, so the whole path of a real host runs: loader, symbols, structs,
 * error codes, events. A profile file named by MUSTER_FAKE_NVML (format: see profile.c) says which GPUs there are and
 * which faults they show; it is read anew whenever it changed, so that faults can be injected into a running host.
 * Every function that nvml.h declares and no file here defines is a stub that returns NVML_ERROR_NOT_SUPPORTED
 * (build.sh makes them). The library exports the symbol muster_fake_nvml, by which the agent knows that nothing it
 * says is real.
 *
 * NVIDIA has mocks of its own: go-nvml's pkg/nvml/mock, which replaces the Go interface and knows no faults, and
 * k8s-test-infra's pkg/gpu/mocknvml, a library like this one. Where ours answers differently from the latter, it is meant:
 * - An Xid reaches the event sets that were registered when it was raised; there it waits for the first set that asks,
 *   in every process. nvml.h promises events to registered sets only.
 * - An event that is about the whole GPU names the instances 0xFFFFFFFF, as nvml.h says; older versions there said 0.
 * - While a registered GPU is lost, a wait answers GPU_IS_LOST at once, in both, but here only after the Xids of all
 *   GPUs were delivered.
 * - A look-up by UUID fails while any GPU is lost, unless the profile says lost_hides = 0; there only that of the lost one.
 * - A reset is refused while persistence mode or any process has the GPU open, and the fabric's registration then takes
 *   a while (fabric_wait); there it clears the faults at once.
 * - A process whose memory is not known has 2^64-1 bytes (NVML_VALUE_NOT_AVAILABLE); there it has what its profile says.
 */
#ifndef MUSTER_FAKE_NVML_H
#define MUSTER_FAKE_NVML_H

#include "nvml.h"
#include <stdbool.h>
#include <stddef.h>

enum { MAX_GPUS = 16, MAX_XIDS = 64, MAX_ERRORS = 8, MAX_INSTANCES = 7, TEXT = 96 };

struct gpu_error {
	char function[TEXT];
	int code;
};

struct gpu_xid {
	long long serial; /* an event is delivered to sets that were registered when only lower serials existed */
	int code;
	int instance; /* GPU instance in which it happened, 0: the whole GPU */
};

/* a MIG device; its number in the GPU's list is its GPU instance id less one */
struct gpu_instance {
	char uuid[TEXT];
	long long memory_mib;
};

struct gpu {
	/* identity */
	char uuid[TEXT], name[TEXT], serial[TEXT], vbios[TEXT], pci[TEXT];
	long long arch, cc_major, cc_minor, memory_mib, reserved_mib;
	/* place */
	long long pcie_gen, pcie_width, pcie_switch, root, numa, p2p;
	long long memory_node; /* the NUMA node that the GPU's own memory is (Grace); -1: its memory is none */
	long long minor;       /* N of /dev/nvidiaN; -1: its place among the GPUs */
	long long nvlinks, nvlinks_down, nvlink_version; /* nvlink_version: nvmlNvlinkVersion_t, an enum; the first nvlinks_down are inactive */
	long long fabric_state, fabric_status, fabric_health; /* of nvmlGpuFabricInfo; state -1: the call is not supported */
	long long fabric_wait; /* the first so many calls of a process answer that registration is in progress */
	long long fabric_settles; /* fabric_wait after a reset */
	char fabric_cluster[TEXT]; /* clusterUuid, 32 hexadecimal digits; "" = zeros */
	long long fabric_clique;
	long long virtualization, vgpu_licensed; /* nvmlGpuVirtualizationMode_t, −1: not supported */
	long long confidential_unready;          /* 1: the GPUs do not accept work */
	char nvlink_remote[TEXT]; /* "switch" or the PCI bus id of the other GPU */
	/* modes; -1 = not supported */
	long long ecc, mig, mig_pending, persistence, confidential;
	long long display; /* 1: a display is active on it */
	struct gpu_instance instances[MAX_INSTANCES];
	int instance_count;
	/* behaviour; unified 1: it has no memory of its own, so that memory calls are not supported (DGX Spark) */
	long long unified;
	long long power_idle_mw, power_limit_mw, temp_idle, temp_busy, load;
	long long clock_sm_mhz, clock_mem_mhz; /* under load; idle: a third of it */
	/* faults */
	long long clocks_reasons;  /* bits of nvmlClocksEventReasons beside those that the load explains */
	long long pcie_width_now, pcie_gen_now; /* of the link under load; 0: the most */
	long long pcie_replays, nvlink_errors, fans;
	long long lost, absent, ecc_uncorrectable, ecc_corrected, remap_corrected, remap_uncorrectable, remap_pending,
		remap_failure, recovery_action, stuck_mib;
	char hang[TEXT], crash[TEXT]; /* function name or "*" */
	struct gpu_error errors[MAX_ERRORS];
	int error_count;
	struct gpu_xid xids[MAX_XIDS];
	int xid_count;
};

struct profile {
	char version[TEXT], nvml[TEXT], hang[TEXT];
	char stall[TEXT]; /* function or "*" that hangs for every GPU while it is set: the whole driver stands still */
	/* clock_ms ≥ 0 stops the clock there; lost_hides 0: a lost GPU does not keep others from being found by UUID */
	long long cuda, init_error, clock_ms, lost_hides;
	struct gpu gpus[MAX_GPUS];
	int count;
};

/* profile.c */
bool profile_read(struct profile *out);             /* a copy of the present profile; false: there is none */
const char *profile_path(void);                     /* NULL: not set */
bool profile_parse(char *text, struct profile *out, char *why, size_t why_size);

/* device.c: every device call begins here. g is a copy: nothing is locked while a call runs (or hangs). */
nvmlReturn_t fake_enter(nvmlDevice_t device, const char *function, struct gpu *g);
nvmlReturn_t fake_text(char *out, unsigned int size, const char *text);
nvmlDevice_t fake_handle(int slot);
int fake_slot(nvmlDevice_t device); /* of a GPU, or of a MIG device's GPU; -1: not a handle */
int fake_instance(nvmlDevice_t device); /* of a MIG device; -1: a whole GPU, or not a handle */
nvmlDevice_t fake_instance_handle(int slot, int instance);
/* instance.c */
struct instance_state {
	int stage;  /* 0: there; 1: its compute instance is destroyed; 2: its GPU instance is, too */
	int remade; /* how often it was recreated */
};
bool fake_takes_instances(const char *function); /* of a call: whether nvml.h lets MIG devices' handles be given to it */
struct instance_state fake_instance_state(const struct gpu *g, int instance);
int fake_slices(const struct gpu *g, const struct gpu_instance *in); /* of the GPU's processors */

bool fake_initialised(void);
void fake_pci(const char *bus_id, nvmlPciInfo_t *pci);
void fake_pause_ms(int ms);

#define ENTER(device)                                                                                                  \
	struct gpu g;                                                                                                  \
	{                                                                                                              \
		nvmlReturn_t entered = fake_enter(device, __func__, &g);                                               \
		if (entered != NVML_SUCCESS)                                                                           \
			return entered;                                                                                \
	}

/* load.c: what a GPU does at a moment */
struct process {
	int pid;
	long long memory_mib;
	int load; /* percent */
	bool graphics;
};
enum { MAX_PROCESSES = 64 };

long long fake_now_ms(void);
int fake_processes(const char *uuid, struct process *out, int max); /* those that live */
int fake_load(const struct gpu *g, long long at_ms);                /* percent */
long long fake_power_limit_mw(const struct gpu *g);                 /* as set last, else what it was made for */
bool fake_set_power_limit(const struct gpu *g, long long mw);
long long fake_power_mw(const struct gpu *g, long long at_ms);
bool fake_energy_mj(const struct gpu *g, long long *energy);

#endif
