package fakekfd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Set replaces a file in GPU i's folder on the PCI bus.
func (t Tree) Set(i int, name, text string) error {
	path := filepath.Join(t.Root, "bus/pci/devices", t.GPUs[i].PCI, name)
	return os.WriteFile(path, []byte(text+"\n"), 0o644)
}

// Fail makes a file in GPU i's folder impossible to read.
func (t Tree) Fail(i int, name string) error {
	path := filepath.Join(t.Root, "bus/pci/devices", t.GPUs[i].PCI, name)
	return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
}

// Lose takes GPU i from the topology and from the PCI bus, as when it falls off the bus.
func (t Tree) Lose(i int) error {
	return errors.Join(os.Rename(filepath.Join(t.Root, fmt.Sprintf("class/kfd/kfd/topology/nodes/%d", 1+i)),
		filepath.Join(t.Root, fmt.Sprintf("lost-%d", i))), os.Remove(filepath.Join(t.Root, "bus/pci/devices", t.GPUs[i].PCI)))
}

// Process lets a process hold memory of GPU i. A process that has opened /dev/kfd is listed for every GPU.
func (t Tree) Process(pid, i int, vram int64) error {
	dir := filepath.Join(t.Root, "class/kfd/kfd/proc", fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for j := range t.GPUs {
		held := int64(0)
		if j == i {
			held = vram
		}
		err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("vram_%d", GPUID(j))), fmt.Appendf(nil, "%d\n", held), 0o644)
		if err != nil {
			return err
		}
	}
	return nil
}

// Queue gives a process that Process has made a queue on GPU i.
func (t Tree) Queue(pid, i int) error {
	dir := filepath.Join(t.Root, "class/kfd/kfd/proc", fmt.Sprint(pid), "queues/0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "gpuid"), fmt.Appendf(nil, "%d\n", GPUID(i)), 0o644)
}

// End ends a process.
func (t Tree) End(pid int) error {
	return os.RemoveAll(filepath.Join(t.Root, "class/kfd/kfd/proc", fmt.Sprint(pid)))
}
