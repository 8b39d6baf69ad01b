package container

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// cdiKind is the kind of the devices that workloads get. Other tools write specifications of other kinds next to it
// (management.nvidia.com/gpu, k8s.device-plugin.nvidia.com/gpu), whose device names are not used.
const cdiKind = "nvidia.com/gpu"

// CDI is what the Container Device Interface offers of NVIDIA's GPUs.
type CDI struct {
	Folders []string // in which Docker looks for specifications; none: it does not use CDI
	Devices []string // names within the kind: GPU UUIDs, indexes, "all"
	Files   []string // specifications of the kind
	// OtherKinds are NVIDIA's specifications of kinds that are not used here.
	OtherKinds []string
	// Wrong is, by device, what keeps the specification that Docker uses for it from giving a container this device: each
	// text names the file.
	Wrong map[string][]string
	// Missing are the files that the specifications in use name and the host does not have. Each is in Wrong, too.
	Missing []string
	// Unread are specifications that Docker does not use because of an error in them.
	Unread []string
	// Stale are specifications with something wrong, none of whose devices are used: a later folder has the same ones.
	Stale []string
}

// lacks returns the GPUs that Docker cannot attach by their UUIDs.
func (c CDI) lacks(gpus []string) []string {
	var out []string
	for _, g := range gpus {
		if !slices.Contains(c.Devices, g) {
			out = append(out, g)
		}
	}
	return out
}

// wrong returns what is wrong with the specifications in use of the GPUs.
func (c CDI) wrong(gpus []string) []string {
	var out []string
	for _, g := range gpus {
		for _, text := range c.Wrong[g] {
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// usable reports whether all of the GPUs can be attached; false if there are no GPUs.
func (c CDI) usable(gpus []string) bool {
	return len(gpus) > 0 && len(c.lacks(gpus)) == 0 && len(c.wrong(gpus)) == 0
}

// Renewable reports whether a specification that is written to a file in a folder is the one that Docker then uses.
func (c CDI) Renewable(folder, file string) bool {
	return len(c.Folders) > 0 && c.Folders[len(c.Folders)-1] == folder &&
		!slices.ContainsFunc(c.Files, func(f string) bool { return filepath.Dir(f) == folder && filepath.Base(f) != file })
}

// refreshSince is the NVIDIA Container Toolkit that keeps a specification in /var/run/cdi up to date.
const refreshSince = "1.18.0"

// describeGPUs returns how an operator gets a CDI specification that matches the host, with this version of the NVIDIA
// Container Toolkit; "" if the version is not known. A file in /etc/cdi stays as it is when the driver or the numbers
// of its device nodes change, so none is advised.
func describeGPUs(toolkit string) string {
	const refresh = "systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service, then systemctl restart " +
		"nvidia-cdi-refresh.service; delete /etc/cdi/nvidia.yaml."
	const generate = "delete /etc/cdi/nvidia.yaml, and after each boot and each change of the driver run nvidia-ctk cdi " +
		"generate --output=/var/run/cdi/nvidia.yaml --device-name-strategy=uuid --device-name-strategy=index."
	switch {
	case toolkit == "":
		return "With NVIDIA Container Toolkit 1.18 or newer: " + refresh + " With an older one: " + generate
	case versionLess(toolkit, refreshSince):
		return "Update nvidia-container-toolkit to 1.18 or newer, which keeps the specification up to date. Until then: " +
			generate
	}
	return refresh
}

// problem returns why GPUs cannot be attached by CDI although there are specifications; nil if they can be, or if there
// are no specifications.
func (c CDI) problem(gpus []string) *agentapi.Problem {
	p := agentapi.Problem{Code: "cdi_not_usable", Severity: "warn", Fix: describeGPUs("")}
	lacking, wrong := c.lacks(gpus), c.wrong(gpus)
	switch {
	case len(gpus) == 0, len(c.Files)+len(c.OtherKinds)+len(c.Devices)+len(c.Unread) == 0:
		return nil
	case len(wrong) > 0:
		p.Cause = "The CDI specification does not match this host, as after an update of the driver or a boot: containers " +
			"with GPUs would not start, or would get other devices."
		p.Evidence = strings.Join(wrong[:min(3, len(wrong))], "; ")
	case len(c.Devices) == 0 && len(c.Unread) > 0:
		p.Cause = "Docker cannot use the CDI specification."
		p.Evidence = strings.Join(c.Unread, "; ")
	case len(c.Devices) == 0:
		p.Cause = "There is a CDI specification, but none of the kind " + cdiKind + "."
		p.Evidence = strings.Join(slices.Concat(c.Files, c.OtherKinds), ", ")
	case len(lacking) > 0:
		p.Cause = fmt.Sprintf("The CDI specification does not name %d of the %d GPUs by UUID.", len(lacking), len(gpus))
		p.Evidence = "it names " + strings.Join(c.Devices[:min(10, len(c.Devices))], ", ")
	default:
		return nil
	}
	return &p
}

// stale returns the problem of specifications that another one hides; nil without one.
func (c CDI) stale() *agentapi.Problem {
	if len(c.Stale) == 0 {
		return nil
	}
	return &agentapi.Problem{
		Code:     "cdi_stale",
		Severity: "warn",
		Cause: "A CDI specification that does not match this host is hidden by a later one. When that one is missing, as " +
			"between a boot and the start of nvidia-cdi-refresh, Docker uses it.",
		Evidence: strings.Join(c.Stale[:min(3, len(c.Stale))], "; "),
		Fix:      "Delete the file: the other specification is the one that is kept up to date.",
	}
}
