package agentapi

import (
	"slices"
	"strings"
)

// These are the environment variables that NVIDIA's container toolkit reads (its package internal/config/image), by
// name or by the start of a name: they choose devices of the host, or decide whether the toolkit lets a container
// start.
var (
	deviceNames    = []string{"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE"}
	devicePrefixes = []string{"NVIDIA_REQUIRE_", "NVIDIA_MIG_", "NVIDIA_IMEX_", "NVIDIA_CTK_",
		"NVIDIA_MOFED", "NVIDIA_GDS", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH"}
)

// ChoosesDevices reports whether a container's environment variable of that name, in any case, decides which devices
// the container gets. Only the agent sets these. All other NVIDIA_… variables belong to renters and their images.
func ChoosesDevices(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(deviceNames, name) ||
		slices.ContainsFunc(devicePrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
