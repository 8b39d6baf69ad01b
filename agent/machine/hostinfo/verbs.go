package hostinfo

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Verbs is what decides whether programs in containers can use the host's RDMA devices at all.
type Verbs struct {
	Lockable bool // programs may lock as much memory as RDMA needs
	// Exclusive: a device works in one network namespace only, the host's. Else it works in all of them, for those who
	// get its device node.
	Exclusive bool
	OFED      bool // the modules are MLNX_OFED's, not the kernel's own
}

// ReadVerbs reads them from a sysfs tree, "" = /sys.
func ReadVerbs(root string) Verbs {
	if root == "" {
		root = "/sys"
	}
	may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	_, ofed := os.Stat(filepath.Join(root, "module/mlx_compat"))
	return Verbs{
		Lockable: err == nil && may != 0,
		// Changes with `rdma system set netns` show here too. Kernels before 5.3 have no mode, and their devices are shared.
		Exclusive: factOf(filepath.Join(root, "module/ib_core/parameters/netns_mode")) == "N",
		OFED:      ofed == nil,
	}
}

// refusal says why no device can be lent, and what to do; "" if they can.
func (v Verbs) refusal() (why, fix string) {
	switch {
	case !v.Lockable:
		return "programs may not lock memory without limit",
			"Run Docker and the agent with the capability CAP_SYS_RESOURCE."
	case v.Exclusive:
		return "RDMA devices work in the host's network namespace only",
			"Run `rdma system set netns shared`, and remove netns_mode=0 from the options of the module ib_core."
	}
	return "", ""
}
