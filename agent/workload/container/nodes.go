package container

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// AMD's GPUs are attached as device nodes: /dev/kfd, which all of them share, and the render node of each. KFD and the
// graphics driver let a process use exactly the GPUs whose render node its control group may open, so a lease can reach
// no other. AMD's own CDI specification names GPUs by their index, which may be another GPU's after a boot, and would
// add nothing.

// ofAMD reports whether the GPUs, given by UUID, are AMD's.
func ofAMD(gpus []string) bool {
	return len(gpus) > 0 && !slices.ContainsFunc(gpus, func(u string) bool { return !strings.HasPrefix(u, "AMD-") })
}

// addNodes gives a container the device nodes, and its processes the groups that own them: an image's user that is not
// root could not open them otherwise. A node that is not there is a Refusal.
func addNodes(hc *container.HostConfig, paths []string) error {
	if len(paths) < 2 { // /dev/kfd alone is no GPU
		return Refusal{agentapi.ReasonRuntimeFailed, "the render nodes of the lease's GPUs are not known"}
	}
	for _, p := range paths {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			return Refusal{agentapi.ReasonRuntimeFailed, fmt.Sprintf("%s: %v", p, err)}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR {
			return Refusal{agentapi.ReasonRuntimeFailed, p + " is not a character device"}
		}
		hc.Devices = append(hc.Devices, container.DeviceMapping{PathOnHost: p, PathInContainer: p, CgroupPermissions: "rw"})
		if group := strconv.FormatUint(uint64(st.Gid), 10); st.Gid != 0 && !slices.Contains(hc.GroupAdd, group) {
			hc.GroupAdd = append(hc.GroupAdd, group)
		}
	}
	return nil
}
