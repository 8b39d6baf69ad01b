package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moby/moby/api/types/system"
)

// maxCDISpec is the most that is read of a specification, in bytes: one of eight GPUs is 60 kB.
const maxCDISpec = 4 << 20

// cdiSpec is the part of a specification that is read.
type cdiSpec struct {
	Kind    string      `yaml:"kind"`
	Edits   cdiEdits    `yaml:"containerEdits"`
	Devices []cdiDevice `yaml:"devices"`

	file   string
	folder int // of Docker's list
}

type cdiDevice struct {
	Name  string   `yaml:"name"`
	Edits cdiEdits `yaml:"containerEdits"`
}

// cdiEdits are changes of a container.
type cdiEdits struct {
	Nodes  []cdiNode `yaml:"deviceNodes"`
	Mounts []struct {
		HostPath string `yaml:"hostPath"`
	} `yaml:"mounts"`
	Hooks []struct {
		Path string `yaml:"path"`
	} `yaml:"hooks"`
}

type cdiNode struct {
	Path     string `yaml:"path"`
	HostPath string `yaml:"hostPath"` // "": the same as Path
	Type     string `yaml:"type"`     // "": that of the node
	Major    uint32 `yaml:"major"`    // 0: the numbers of the node
	Minor    uint32 `yaml:"minor"`
}

// readCDI reads the specifications in the daemon's folders. If the daemon lists the devices that it has found itself
// (28.2 and newer), that list is used.
func readCDI(dirs []string, discovered []system.DeviceInfo) CDI {
	return thisCDIHost.read(dirs, discovered)
}

// read reads the specifications as Docker's CDI library does. Of two specifications with the same device, that in the
// later folder counts; a device that is twice in one folder does not exist.
func (h cdiHost) read(dirs []string, discovered []system.DeviceInfo) CDI {
	out := CDI{Folders: dirs, Wrong: map[string][]string{}}
	var specs []cdiSpec
	for i, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			file := filepath.Join(dir, e.Name())
			if ext := filepath.Ext(file); e.IsDir() || ext != ".json" && ext != ".yaml" {
				continue
			}
			switch spec, err := readSpec(file); {
			case err != nil && !strings.Contains(e.Name(), "nvidia"): // another vendor's
			case err != nil:
				out.Unread = append(out.Unread, fmt.Sprintf("%s: %v", file, err))
			case spec.Kind == cdiKind:
				spec.file, spec.folder = file, i
				out.Files = append(out.Files, file)
				specs = append(specs, spec)
			case strings.Contains(spec.Kind, "nvidia.com"):
				out.OtherKinds = append(out.OtherKinds, file)
			}
		}
	}
	winners := out.resolve(specs)
	if len(discovered) > 0 {
		out.Devices = nil
		for _, d := range discovered {
			if name, ok := strings.CutPrefix(d.ID, cdiKind+"="); ok {
				out.Devices = append(out.Devices, name)
			}
		}
	}
	h.compare(specs, winners, &out)
	return out
}

// resolve fills in the devices that Docker has, and returns the specification of each, by index.
func (c *CDI) resolve(specs []cdiSpec) map[string]int {
	winners := map[string]int{}
	for i, spec := range specs {
		for _, d := range spec.Devices {
			other, taken := winners[d.Name]
			if taken && specs[other].folder == spec.folder {
				c.Wrong[d.Name] = append(c.Wrong[d.Name], fmt.Sprintf("%s and %s, in one folder, both name it, so that Docker "+
					"uses neither", specs[other].file, spec.file))
			}
			winners[d.Name] = i
		}
	}
	for _, spec := range specs {
		for _, d := range spec.Devices {
			if len(c.Wrong[d.Name]) == 0 && !slices.Contains(c.Devices, d.Name) {
				c.Devices = append(c.Devices, d.Name)
			}
		}
	}
	return winners
}

// compare finds what in the specifications does not match the host.
func (h cdiHost) compare(specs []cdiSpec, winners map[string]int, out *CDI) {
	state := h.look()
	for i, spec := range specs {
		shared, used := state.edits(spec.Edits, ""), false
		var hidden []string
		for _, d := range spec.Devices {
			wrong := slices.Concat(shared, state.edits(d.Edits, d.Name), state.whole(d.Name, spec.Edits, d.Edits))
			if winners[d.Name] != i {
				hidden = append(hidden, texts(wrong)...)
				continue
			}
			used = true
			for _, w := range wrong {
				if w.missing != "" && !slices.Contains(out.Missing, w.missing) {
					out.Missing = append(out.Missing, w.missing)
				}
			}
			for _, text := range texts(wrong) {
				out.Wrong[d.Name] = append(out.Wrong[d.Name], spec.file+": "+text)
			}
		}
		if !used && len(hidden) > 0 {
			out.Stale = append(out.Stale, spec.file+": "+hidden[0])
		}
	}
}

func texts(all []cdiFlaw) []string {
	out := make([]string, len(all))
	for i, f := range all {
		out[i] = f.text
	}
	return out
}

// readSpec reads one file. An error is a reason for which Docker ignores the file.
func readSpec(file string) (cdiSpec, error) {
	info, err := os.Stat(file)
	if err != nil {
		return cdiSpec{}, reason(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxCDISpec {
		return cdiSpec{}, errors.New("it is not a file of a specification's size")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return cdiSpec{}, reason(err)
	}
	var spec cdiSpec
	if err := yaml.Unmarshal(b, &spec); err != nil { // JSON is YAML
		return cdiSpec{}, fmt.Errorf("it cannot be read: %w", err)
	}
	names := map[string]bool{}
	for _, d := range spec.Devices {
		if names[d.Name] {
			return cdiSpec{}, fmt.Errorf("it names the device %s twice", d.Name)
		}
		names[d.Name] = true
	}
	return spec, nil
}

// reason returns an error without the file's path, which the caller adds.
func reason(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}
