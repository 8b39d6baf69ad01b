package gpucheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/agent/machine/hostinfo"
)

// Explain adds to a failure between two GPUs what this machine has that is known to break or to stop traffic between
// GPUs. sysfs is the machine's /sys. A container does not see which bridges redirect traffic, so the agent adds what
// the check in a container could not. f may be nil.
func (f *Failure) Explain(sysfs string) {
	if f == nil || !slices.ContainsFunc([]string{StepCopy, StepWrite, StepRing}, func(step string) bool {
		return strings.HasPrefix(f.Step, step)
	}) {
		return
	}
	const iommu, acs = "this machine has an IOMMU", "redirect their traffic (ACS)"
	if hostinfo.IOMMUs(sysfs) > 0 && !strings.Contains(f.Text, iommu) {
		f.Text += "; " + iommu + ", which can break traffic between GPUs: boot with iommu=pt, or turn it off in the firmware"
	}
	if n := len(hostinfo.Redirecting(sysfs)); n > 0 && !strings.Contains(f.Text, acs) {
		f.Text += fmt.Sprintf("; %d PCI bridges above GPUs %s, which can stop it: turn ACS off", n, acs)
	}
}
