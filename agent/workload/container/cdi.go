package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moby/moby/api/types/system"

	"github.com/musterhq/muster/internal/agentapi"
)

// cdiKind is the kind of the devices that workloads get. Other tools write specifications of other kinds next to it
// (management.nvidia.com/gpu, k8s.device-plugin.nvidia.com/gpu), whose device names are not used.
const cdiKind = "nvidia.com/gpu"

// maxCDISpec is the most that is read of a specification, in bytes: one of eight GPUs is 60 kB.
const maxCDISpec = 4 << 20

// CDI is what the Container Device Interface offers of NVIDIA's GPUs.
type CDI struct {
	Devices []string // names within the kind: GPU UUIDs, indexes, "all"
	Missing []string // files that a specification names and the host does not have
	Files   []string // specifications of the kind
	// OtherKinds are NVIDIA's specifications of kinds that are not used here.
	OtherKinds []string
}

// lacks returns the GPUs that cannot be attached by their UUIDs.
func (c CDI) lacks(gpus []string) []string {
	var out []string
	for _, g := range gpus {
		if !slices.Contains(c.Devices, g) {
			out = append(out, g)
		}
	}
	return out
}

// usable reports whether all of the GPUs can be attached; false if there are no GPUs.
func (c CDI) usable(gpus []string) bool {
	return len(gpus) > 0 && len(c.Missing) == 0 && len(c.lacks(gpus)) == 0
}

// problem returns why GPUs cannot be attached by CDI although there are specifications; nil if they can be, or if there
// are no specifications.
func (c CDI) problem(gpus []string) *agentapi.Problem {
	p := agentapi.Problem{
		Code:     "cdi_not_usable",
		Severity: "warn",
		Fix: "Write the specification again: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml " +
			"--device-name-strategy=uuid --device-name-strategy=index. After an update of the driver do so again.",
	}
	lacking := c.lacks(gpus)
	switch {
	case len(gpus) == 0, len(c.Files)+len(c.OtherKinds)+len(c.Devices) == 0:
		return nil
	case len(c.Missing) > 0:
		p.Cause = "The CDI specification names files that are not there, as after an update of the driver: containers with " +
			"GPUs would not start."
		p.Evidence = strings.Join(c.Missing[:min(3, len(c.Missing))], ", ")
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

// readCDI reads the specifications in the daemon's folders. If the daemon lists the devices that it has found itself
// (28.2 and newer), that list is used.
func readCDI(dirs []string, discovered []system.DeviceInfo) CDI {
	var out CDI
	for _, dir := range dirs {
		for _, pattern := range []string{"*.json", "*.yaml", "*.yml"} {
			files, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, file := range files {
				out.read(file)
			}
		}
	}
	if len(discovered) > 0 {
		out.Devices = nil
		for _, d := range discovered {
			if name, ok := strings.CutPrefix(d.ID, cdiKind+"="); ok {
				out.Devices = append(out.Devices, name)
			}
		}
	}
	return out
}

// cdiSpec is the part of a specification that is read.
type cdiSpec struct {
	Kind    string   `yaml:"kind"`
	Edits   cdiEdits `yaml:"containerEdits"`
	Devices []struct {
		Name  string   `yaml:"name"`
		Edits cdiEdits `yaml:"containerEdits"`
	} `yaml:"devices"`
}

type cdiEdits struct {
	Mounts []struct {
		HostPath string `yaml:"hostPath"`
	} `yaml:"mounts"`
}

func (c *CDI) read(file string) {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxCDISpec {
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return
	}
	var spec cdiSpec
	if err := yaml.Unmarshal(b, &spec); err != nil { // JSON is YAML
		return
	}
	if spec.Kind != cdiKind {
		if strings.Contains(spec.Kind, "nvidia.com") {
			c.OtherKinds = append(c.OtherKinds, file)
		}
		return
	}
	c.Files = append(c.Files, file)
	c.check(spec.Edits)
	for _, d := range spec.Devices {
		c.Devices = append(c.Devices, d.Name)
		c.check(d.Edits)
	}
}

func (c *CDI) check(e cdiEdits) {
	for _, m := range e.Mounts {
		if _, err := os.Stat(m.HostPath); errors.Is(err, fs.ErrNotExist) {
			if !slices.Contains(c.Missing, m.HostPath) {
				c.Missing = append(c.Missing, m.HostPath)
			}
		}
	}
}
