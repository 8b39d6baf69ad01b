package container

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Newer toolkits write the numbers of device nodes into a specification, and Docker gives a container the device of
// that number. After a boot, the numbers of nvidia-uvm and nvidia-caps can belong to another driver, and after an
// update of the kernel those of /dev/dri to another GPU. A container would then start without a device that it needs,
// or with a device of another lease.

// cdiHost is the machine that specifications are compared with.
type cdiHost struct {
	root   string                               // of /proc and /sys
	node   func(path string) (cdiNumber, error) // the numbers of a character device
	exists func(path string) bool               // false only if it is known that the file is missing
}

// thisCDIHost is this machine.
var thisCDIHost = cdiHost{root: "/", node: numberOf, exists: func(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}}

// cdiNumber is the number of a device.
type cdiNumber struct{ major, minor uint32 }

func (n cdiNumber) String() string { return fmt.Sprintf("%d:%d", n.major, n.minor) }

var errNoCharDevice = errors.New("is not a character device")

// numberOf returns the numbers of a device node. Docker does not follow symbolic links here.
func numberOf(path string) (cdiNumber, error) {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, fs.ErrNotExist):
		return cdiNumber{}, errors.New("is not there")
	case err != nil:
		return cdiNumber{}, fmt.Errorf("cannot be looked at: %w", err)
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		return cdiNumber{}, errNoCharDevice
	}
	return cdiNumber{unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))}, nil
}

// cdiFlaw is something in a specification that does not match the host.
type cdiFlaw struct {
	text    string
	missing string // the file, if it is a file that is missing
}

// cdiState is what the kernel reports of the GPUs.
type cdiState struct {
	cdiHost
	gpus map[string]kernelGPU // by UUID
	caps map[int]capability   // by the minor number of the node in /dev/nvidia-caps
}

// kernelGPU is a GPU in /proc/driver/nvidia/gpus.
type kernelGPU struct {
	minor int    // of /dev/nvidiaN
	pci   string // 0000:17:00.0
}

// capability is the right to use a GPU instance (compute is "") or a compute instance of it.
type capability struct{ gpu, instance, compute string }

func (h cdiHost) look() cdiState {
	s := cdiState{cdiHost: h, gpus: map[string]kernelGPU{}, caps: map[int]capability{}}
	files, _ := filepath.Glob(filepath.Join(h.root, "proc/driver/nvidia/gpus/*/information"))
	for _, file := range files {
		facts := factsIn(file)
		if minor, err := strconv.Atoi(facts["Device Minor"]); err == nil {
			s.gpus[facts["GPU UUID"]] = kernelGPU{minor, facts["Bus Location"]}
		}
	}
	root := filepath.Join(h.root, "proc/driver/nvidia/capabilities")
	for _, pattern := range []string{"gpu*/mig/gi*/access", "gpu*/mig/gi*/ci*/access"} {
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, file := range files {
			minor, err := strconv.Atoi(factsIn(file)["DeviceFileMinor"])
			rel, _ := filepath.Rel(root, file)
			if parts := strings.Split(rel, "/"); err == nil {
				s.caps[minor] = capability{parts[0], parts[2], strings.TrimSuffix(parts[3], "access")}
			}
		}
	}
	return s
}

// factsIn reads a file of lines "name: value".
func factsIn(file string) map[string]string {
	out := map[string]string{}
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return out
}

// edits finds what in edits does not match the host. name is the device that they are for; "" = all of a specification.
func (s cdiState) edits(e cdiEdits, name string) []cdiFlaw {
	var out []cdiFlaw
	for _, n := range e.Nodes {
		if text := s.wrongNode(n); text != "" {
			f := cdiFlaw{text: text}
			if strings.HasSuffix(text, "is not there") {
				f.missing = n.host()
			}
			out = append(out, f)
		} else if text := s.foreignNode(n.host(), name); text != "" {
			out = append(out, cdiFlaw{text: text})
		}
	}
	files := make([]string, 0, len(e.Mounts)+len(e.Hooks))
	for _, m := range e.Mounts {
		files = append(files, m.HostPath)
	}
	for _, k := range e.Hooks {
		files = append(files, k.Path)
	}
	for _, file := range files {
		if !s.exists(file) {
			out = append(out, cdiFlaw{file + " is not there", file})
		}
	}
	return out
}

// host returns the path of a node on the host.
func (n cdiNode) host() string { return cmp.Or(n.HostPath, n.Path) }

// wrongNode returns what keeps a node from being the device that the specification means; "" if nothing does.
func (s cdiState) wrongNode(n cdiNode) string {
	is, err := s.node(n.host())
	switch given := (cdiNumber{n.Major, n.Minor}); {
	case err != nil:
		return n.host() + " " + err.Error()
	case n.Type != "" && n.Type != "c" && n.Type != "u":
		return fmt.Sprintf("%s is a character device, not of type %q", n.host(), n.Type)
	case n.Major != 0 && given != is:
		return fmt.Sprintf("%s has the device number %v, the specification gives it %v", n.host(), is, given)
	}
	return ""
}

var (
	gpuNode   = regexp.MustCompile(`^nvidia([0-9]+)$`)
	drawNode  = regexp.MustCompile(`^(card|renderD)[0-9]+$`)
	rightNode = regexp.MustCompile(`^nvidia-cap([0-9]+)$`)
)

// numberIn returns the number in the name of a node.
func numberIn(kind *regexp.Regexp, path string) (int, bool) {
	m := kind.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}

// foreignNode returns why a node is not the named GPU's; "" if it is, if all GPUs share it, or if the GPU is not known.
func (s cdiState) foreignNode(path, name string) string {
	g, known := s.gpus[name]
	if !known {
		return ""
	}
	if n, ok := numberIn(gpuNode, path); ok && n != g.minor {
		return fmt.Sprintf("%s is not the node of %s, which is nvidia%d", path, name, g.minor)
	}
	if base := filepath.Base(path); drawNode.MatchString(base) {
		link, err := filepath.EvalSymlinks(filepath.Join(s.root, "sys/class/drm", base, "device"))
		if pci := filepath.Base(link); err == nil && !strings.EqualFold(pci, g.pci) {
			return fmt.Sprintf("%s is the device at %s, %s is at %s", path, pci, name, g.pci)
		}
	}
	return ""
}

// whole finds nodes that a device lacks, and nodes of other GPUs among those that its specification gives to all
// devices.
func (s cdiState) whole(name string, shared, own cdiEdits) []cdiFlaw {
	var out []cdiFlaw
	var gpus, rights []int
	for _, n := range shared.Nodes {
		if text := s.foreignNode(n.host(), name); text != "" {
			out = append(out, cdiFlaw{text: text})
		}
	}
	for _, n := range slices.Concat(shared.Nodes, own.Nodes) {
		if minor, ok := numberIn(gpuNode, n.host()); ok && !slices.Contains(gpus, minor) {
			gpus = append(gpus, minor)
		}
		if minor, ok := numberIn(rightNode, n.Path); ok && !slices.Contains(rights, minor) {
			rights = append(rights, minor)
		}
	}
	if g, known := s.gpus[name]; known && !slices.Contains(gpus, g.minor) {
		out = append(out, cdiFlaw{text: fmt.Sprintf("it does not give %s its node nvidia%d", name, g.minor)})
	}
	if isSlice(name) {
		if text := s.wrongRights(gpus, rights); text != "" {
			out = append(out, cdiFlaw{text: "for " + name + " it " + text})
		}
	}
	return out
}

// wrongRights returns what is wrong with the nodes of a MIG device: it needs those of its GPU instance and of its
// compute instance, and no others.
func (s cdiState) wrongRights(gpus, rights []int) string {
	const need = "the two that a MIG device needs"
	slices.Sort(rights)
	if len(rights) != 2 || rights[0] <= 2 { // 1 and 2 are the rights to change and to watch layouts
		return fmt.Sprintf("names %s in /dev/nvidia-caps, not %s", capNames(rights), need)
	}
	if len(s.caps) == 0 {
		return ""
	}
	a, b := s.caps[rights[0]], s.caps[rights[1]]
	if b.compute == "" {
		a, b = b, a
	}
	if a.gpu == "" || a.gpu != b.gpu || a.instance != b.instance || a.compute != "" || b.compute == "" {
		return fmt.Sprintf("names %s in /dev/nvidia-caps, which are not those of one MIG device", capNames(rights))
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(a.gpu, "gpu")); err == nil && !slices.Equal(gpus, []int{n}) {
		return fmt.Sprintf("names %s in /dev/nvidia-caps, of nvidia%d, without that node alone", capNames(rights), n)
	}
	return ""
}

func capNames(minors []int) string {
	if len(minors) == 0 {
		return "nothing"
	}
	out := make([]string, len(minors))
	for i, m := range minors {
		out[i] = fmt.Sprintf("nvidia-cap%d", m)
	}
	return strings.Join(out, ", ")
}
