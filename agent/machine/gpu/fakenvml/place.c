/* Where a GPU is: PCIe, NUMA, NVLink, its neighbours. */
#include "fake.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void fake_pci(const char *bus_id, nvmlPciInfo_t *pci) {
	memset(pci, 0, sizeof *pci);
	unsigned int function = 0;
	if (sscanf(bus_id, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function) < 3)
		return;
	snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
		 pci->device & 0xff);
	pci->pciDeviceId = 0x10de;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	ENTER(device);
	fake_pci(g.pci, pci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *gen) {
	ENTER(device);
	*gen = (unsigned int)g.pcie_gen;
	return NVML_SUCCESS;
}

/* An idle link slows down, as on real cards. */
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *gen) {
	ENTER(device);
	long long most = g.pcie_gen_now ? g.pcie_gen_now : g.pcie_gen;
	*gen = fake_load(&g, fake_now_ms()) > 0 || g.nvlinks ? (unsigned int)most : 1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
	ENTER(device);
	*width = (unsigned int)g.pcie_width;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
	ENTER(device);
	*width = (unsigned int)(g.pcie_width_now ? g.pcie_width_now : g.pcie_width);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
	ENTER(device);
	if (g.memory_node < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*node = (unsigned int)g.memory_node;
	return NVML_SUCCESS;
}

/* The processors' node that the GPU is near: what nvmlDeviceGetNumaNodeId does not tell. */
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *set, nvmlAffinityScope_t scope) {
	(void)scope;
	ENTER(device);
	if (g.numa < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!set || size < 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(set, 0, size * sizeof *set);
	set[0] = 1ul << g.numa;
	return NVML_SUCCESS;
}

/* Both versions of the struct begin alike; the second ends before the summary. */
/* The state that a call is answered: after a reset, registration is in progress for some calls. */
static nvmlGpuFabricState_t fabric_state(nvmlDevice_t device, const struct gpu *g) {
	static atomic_llong calls[MAX_GPUS];
	if (g->fabric_wait && atomic_fetch_add(&calls[fake_slot(device)], 1) < g->fabric_wait)
		return NVML_GPU_FABRIC_STATE_IN_PROGRESS;
	return (nvmlGpuFabricState_t)g->fabric_state;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
	ENTER(device);
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (g.fabric_state < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	info->state = fabric_state(device, &g);
	info->status = (nvmlReturn_t)g.fabric_status;
	info->healthMask = (unsigned int)g.fabric_health;
	info->cliqueId = (unsigned int)g.fabric_clique;
	memset(info->clusterUuid, 0, sizeof info->clusterUuid);
	for (size_t i = 0; i < sizeof info->clusterUuid && g.fabric_cluster[2 * i]; i++) {
		unsigned int byte = 0;
		sscanf(g.fabric_cluster + 2 * i, "%2x", &byte);
		info->clusterUuid[i] = (unsigned char)byte;
	}
	if (info->version == nvmlGpuFabricInfo_v3)
		info->healthSummary = NVML_GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
	ENTER(device);
	if (g.fabric_state < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(info, 0, sizeof *info);
	info->state = fabric_state(device, &g);
	info->status = (nvmlReturn_t)g.fabric_status;
	return NVML_SUCCESS;
}

#define ENTER_LINK(device, link)                                                                                       \
	ENTER(device);                                                                                                 \
	if (g.nvlinks == 0)                                                                                            \
		return NVML_ERROR_NOT_SUPPORTED;                                                                       \
	if ((link) >= g.nvlinks)                                                                                       \
		return NVML_ERROR_INVALID_ARGUMENT;

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
	ENTER_LINK(device, link);
	*active = link < g.nvlinks_down ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
	ENTER_LINK(device, link);
	*version = (unsigned int)g.nvlink_version;
	return NVML_SUCCESS;
}

/* The links of a switched system are spread over four switches. */
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
	ENTER_LINK(device, link);
	char bus[TEXT];
	if (!strcmp(g.nvlink_remote, "switch"))
		snprintf(bus, sizeof bus, "00000000:%02X:00.0", 0x05 + link % 4);
	else
		snprintf(bus, sizeof bus, "%s", g.nvlink_remote);
	fake_pci(bus, pci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
	return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type) {
	ENTER_LINK(device, link);
	*type = strcmp(g.nvlink_remote, "switch") ? NVML_NVLINK_DEVICE_TYPE_GPU : NVML_NVLINK_DEVICE_TYPE_SWITCH;
	return NVML_SUCCESS;
}

static nvmlReturn_t second(nvmlDevice_t device, const char *function, struct gpu *other) {
	return fake_enter(device, function, other);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t device2, nvmlGpuTopologyLevel_t *level) {
	ENTER(device);
	struct gpu o;
	nvmlReturn_t r = second(device2, __func__, &o);
	if (r != NVML_SUCCESS)
		return r;
	if (device.handle == device2.handle)
		*level = NVML_TOPOLOGY_INTERNAL;
	else if (g.numa != o.numa)
		*level = NVML_TOPOLOGY_SYSTEM;
	else if (g.root != o.root)
		*level = NVML_TOPOLOGY_NODE;
	else if (!g.pcie_switch || g.pcie_switch != o.pcie_switch)
		*level = NVML_TOPOLOGY_HOSTBRIDGE;
	else
		*level = NVML_TOPOLOGY_SINGLE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t caps, nvmlGpuP2PStatus_t *status) {
	ENTER(device);
	struct gpu o;
	nvmlReturn_t r = second(device2, __func__, &o);
	if (r != NVML_SUCCESS)
		return r;
	*status = NVML_P2P_STATUS_OK;
	if (!g.p2p || !o.p2p)
		*status = NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
	if (caps == NVML_P2P_CAPS_INDEX_NVLINK && (!g.nvlinks || !o.nvlinks))
		*status = NVML_P2P_STATUS_NOT_SUPPORTED;
	return NVML_SUCCESS;
}
