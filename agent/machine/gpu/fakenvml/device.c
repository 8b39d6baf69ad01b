/* Start and end, handles, and what a GPU is. */
#include "fake.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* By this symbol an agent knows that the GPUs are simulated. */
const char muster_fake_nvml[] = "muster fake NVML 1";

static atomic_int users;
/* A handle is the address of its slot: of a GPU the first of its row, then its MIG devices. */
enum { ROW = 1 + MAX_INSTANCES };
static char slots[MAX_GPUS * ROW];

bool fake_initialised(void) { return atomic_load(&users) > 0; }

void fake_pause_ms(int ms) {
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};
	nanosleep(&ts, NULL);
}

nvmlDevice_t fake_handle(int slot) { return (nvmlDevice_t){(void *)&slots[slot * ROW]}; }

nvmlDevice_t fake_instance_handle(int slot, int instance) {
	return (nvmlDevice_t){(void *)&slots[slot * ROW + 1 + instance]};
}

static int place(nvmlDevice_t device) {
	uintptr_t at = (uintptr_t)device.handle, base = (uintptr_t)slots;
	return at >= base && at < base + sizeof slots ? (int)(at - base) : -1;
}

int fake_instance(nvmlDevice_t device) { return place(device) < 0 ? -1 : place(device) % ROW - 1; }

int fake_slot(nvmlDevice_t device) {
	return place(device) < 0 ? -1 : place(device) / ROW;
}

nvmlReturn_t fake_text(char *out, unsigned int size, const char *text) {
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!*text)
		return NVML_ERROR_NOT_SUPPORTED;
	if (strlen(text) + 1 > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

static bool named(const char *fault, const char *function) { return !strcmp(fault, "*") || !strcmp(fault, function); }

/* Hangs while the whole driver stands still. */
static void stalled(const char *function) {
	struct profile p;
	while (profile_read(&p) && p.stall[0] && named(p.stall, function))
		fake_pause_ms(20);
}

static nvmlReturn_t read_slot(int slot, struct gpu *g) {
	struct profile p;
	if (!profile_read(&p) || slot < 0 || slot >= p.count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*g = p.gpus[slot];
	return NVML_SUCCESS;
}

nvmlReturn_t fake_enter(nvmlDevice_t device, const char *function, struct gpu *g) {
	if (!fake_initialised())
		return NVML_ERROR_UNINITIALIZED;
	stalled(function);
	nvmlReturn_t got;
	while ((got = read_slot(fake_slot(device), g)) == NVML_SUCCESS && g->hang[0] && named(g->hang, function))
		fake_pause_ms(20); /* hangs until the fault is taken away */
	if (got != NVML_SUCCESS)
		return got;
	if (g->crash[0] && named(g->crash, function))
		raise(SIGKILL);
	if (g->lost || g->absent)
		return NVML_ERROR_GPU_IS_LOST;
	if (fake_instance(device) >= 0 && !fake_takes_instances(function))
		return NVML_ERROR_NOT_SUPPORTED;
	if (fake_instance(device) >= 0 && (g->mig != 1 || fake_instance(device) >= g->instance_count ||
					   fake_instance_state(g, fake_instance(device)).stage > 0))
		return NVML_ERROR_INVALID_ARGUMENT; /* it was destroyed since */
	for (int i = 0; i < g->error_count; i++)
		if (named(g->errors[i].function, function))
			return (nvmlReturn_t)g->errors[i].code;
	return NVML_SUCCESS;
}

/* Notes in the folder PROFILE.clients that this process has the GPUs open, or has not any more: a reset is refused
 * while somebody has. A process that was killed leaves its name behind; whoever looks sees that it does not live. */
static void client(bool opens) {
	char path[4096];
	const char *profile = profile_path();
	if (!profile || snprintf(path, sizeof path, "%s.clients", profile) >= (int)sizeof path)
		return;
	mkdir(path, 0700);
	if (snprintf(path, sizeof path, "%s.clients/%d", profile, (int)getpid()) >= (int)sizeof path)
		return;
	if (!opens) {
		unlink(path);
		return;
	}
	FILE *f = fopen(path, "we");
	if (f)
		fclose(f);
}

static nvmlReturn_t start(const char *function) {
	struct profile p;
	do {
		if (!profile_read(&p)) {
			fprintf(stderr, "fake NVML: MUSTER_FAKE_NVML names no readable profile\n");
			return NVML_ERROR_DRIVER_NOT_LOADED;
		}
		if (p.hang[0] && named(p.hang, function))
			fake_pause_ms(20);
	} while (p.hang[0] && named(p.hang, function));
	stalled(function);
	if (p.init_error)
		return (nvmlReturn_t)p.init_error;
	client(atomic_fetch_add(&users, 1) == 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void) { return start("nvmlInit_v2"); }
nvmlReturn_t nvmlInit_v2(void) { return start("nvmlInit_v2"); }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
	(void)flags;
	return start("nvmlInitWithFlags");
}

nvmlReturn_t nvmlShutdown(void) {
	if (!fake_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (atomic_fetch_sub(&users, 1) == 1)
		client(false);
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
	switch ((int)result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
	default: return "Unknown Error";
	}
}

static nvmlReturn_t system_text(const char *fallback, size_t offset, char *out, unsigned int size) {
	struct profile p;
	if (!fake_initialised() || !profile_read(&p))
		return NVML_ERROR_UNINITIALIZED;
	const char *text = (const char *)&p + offset;
	return fake_text(out, size, *text ? text : fallback);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
	return system_text("550.90.07", offsetof(struct profile, version), version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
	return system_text("12.550.90.07", offsetof(struct profile, nvml), version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
	struct profile p;
	if (!profile_read(&p))
		return NVML_ERROR_UNINITIALIZED;
	*version = (int)p.cuda;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state) {
	struct profile p;
	if (!profile_read(&p) || !p.count || p.gpus[0].confidential < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(state, 0, sizeof *state);
	state->ccFeature = (unsigned int)p.gpus[0].confidential;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
	struct profile p;
	if (!fake_initialised() || !profile_read(&p))
		return NVML_ERROR_UNINITIALIZED;
	stalled(__func__);
	*count = 0;
	for (int i = 0; i < p.count; i++)
		*count += !p.gpus[i].absent;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	struct profile p;
	if (!fake_initialised() || !profile_read(&p))
		return NVML_ERROR_UNINITIALIZED;
	for (int i = 0; i < p.count; i++) {
		if (p.gpus[i].absent || index--)
			continue;
		*device = fake_handle(i);
		struct gpu g;
		return fake_enter(*device, __func__, &g);
	}
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Looks at one GPU after the other until it has found the one: nvml.h lets it answer GPU_IS_LOST "if any GPU has fallen
 * off the bus", whichever is asked for. */
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
	struct profile p;
	if (!fake_initialised() || !profile_read(&p))
		return NVML_ERROR_UNINITIALIZED;
	stalled(__func__);
	for (int i = 0; p.lost_hides && i < p.count; i++)
		if (p.gpus[i].lost)
			return NVML_ERROR_GPU_IS_LOST;
	for (int i = 0; i < p.count; i++) {
		if (p.gpus[i].absent)
			continue;
		if (!strcmp(p.gpus[i].uuid, uuid)) {
			*device = fake_handle(i);
			return NVML_SUCCESS;
		}
		for (int k = 0; p.gpus[i].mig == 1 && k < p.gpus[i].instance_count; k++)
			if (!strcmp(p.gpus[i].instances[k].uuid, uuid)) {
				*device = fake_instance_handle(i, k);
				return NVML_SUCCESS;
			}
	}
	return NVML_ERROR_NOT_FOUND;
}

/* Only the target matters here: "if the target GPU has fallen off the bus". */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
	struct profile p;
	nvmlPciInfo_t want, have;
	if (!fake_initialised() || !profile_read(&p))
		return NVML_ERROR_UNINITIALIZED;
	fake_pci(bus_id, &want);
	if (!want.busId[0])
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < p.count; i++) {
		fake_pci(p.gpus[i].pci, &have);
		if (p.gpus[i].absent || strcmp(have.busId, want.busId))
			continue;
		*device = fake_handle(i);
		struct gpu g;
		return fake_enter(*device, __func__, &g);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
	return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	ENTER(device);
	int instance = fake_instance(device);
	return fake_text(uuid, length, instance < 0 ? g.uuid : g.instances[instance].uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	ENTER(device);
	if (fake_instance(device) < 0)
		return fake_text(name, length, g.name);
	char text[2 * TEXT];
	struct gpu_instance *in = &g.instances[fake_instance(device)];
	snprintf(text, sizeof text, "%s MIG %dg.%lldgb", g.name, fake_slices(&g, in), (in->memory_mib + 1023) / 1024);
	return fake_text(name, length, text);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
	ENTER(device);
	return fake_text(serial, length, g.serial);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length) {
	ENTER(device);
	return fake_text(version, length, g.vbios);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
	ENTER(device);
	struct profile p;
	profile_read(&p);
	*index = 0;
	for (int i = 0; i < fake_slot(device) && i < p.count; i++)
		*index += !p.gpus[i].absent;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
	ENTER(device);
	*minor = (unsigned int)(g.minor < 0 ? fake_slot(device) : g.minor);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch) {
	ENTER(device);
	*arch = (nvmlDeviceArchitecture_t)g.arch;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
	ENTER(device);
	*major = (int)g.cc_major;
	*minor = (int)g.cc_minor;
	return NVML_SUCCESS;
}

static nvmlReturn_t mode(long long value, nvmlEnableState_t *out) {
	if (value < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*out = (nvmlEnableState_t)value;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *out) {
	ENTER(device);
	return mode(g.persistence, out);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *out) {
	ENTER(device);
	return mode(g.display, out);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now, nvmlEnableState_t *pending) {
	ENTER(device);
	nvmlReturn_t r = mode(g.ecc, now);
	return r == NVML_SUCCESS ? mode(g.ecc, pending) : r;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
	ENTER(device);
	if (g.mig < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*now = (unsigned int)g.mig;
	*pending = (unsigned int)(g.mig_pending < 0 ? g.mig : g.mig_pending);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned int *ready) {
	struct profile p;
	if (!profile_read(&p) || !p.count || p.gpus[0].confidential < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*ready = !p.gpus[0].confidential_unready;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode) {
	ENTER(device);
	if (g.virtualization < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*mode = (nvmlGpuVirtualizationMode_t)g.virtualization;
	return NVML_SUCCESS;
}

/* A vGPU has a feature of its product, which a licence server enables. */
nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *features) {
	ENTER(device);
	memset(features, 0, sizeof *features);
	if (g.virtualization != NVML_GPU_VIRTUALIZATION_MODE_VGPU)
		return NVML_SUCCESS;
	features->isGridLicenseSupported = 1;
	features->licensableFeaturesCount = 1;
	features->gridLicensableFeatures[0].featureCode = NVML_GRID_LICENSE_FEATURE_CODE_COMPUTE;
	features->gridLicensableFeatures[0].featureEnabled = 1;
	features->gridLicensableFeatures[0].featureState = (unsigned int)g.vgpu_licensed;
	strcpy(features->gridLicensableFeatures[0].productName, "NVIDIA Virtual Compute Server");
	return NVML_SUCCESS;
}
