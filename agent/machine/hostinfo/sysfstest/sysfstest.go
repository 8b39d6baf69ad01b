// Package sysfstest writes trees like /sys for tests: the parts that the agent reads, for machines that the tests do
// not run on.
package sysfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Write writes a file into a tree.
func Write(t testing.TB, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Link creates a symbolic link in a tree, to a path inside it, which is created too.
func Link(t testing.TB, root, path, target string) {
	t.Helper()
	path, target = filepath.Join(root, path), filepath.Join(root, target)
	for _, dir := range []string{filepath.Dir(path), target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// DGX is a machine with two processors of 56 cores and two threads each, 1 TiB of memory near each, and eight GPUs, as
// a DGX H100 numbers them: threads 0-55 and 112-167 are near the first four GPUs.
type DGX struct {
	Root string
	GPUs [8]string // PCI addresses, in NVML's form
	NUMA [8]int    // NUMA node of each
}

// NewDGX writes the tree.
func NewDGX(t testing.TB) DGX {
	d := DGX{Root: t.TempDir()}
	write := func(path, content string) { t.Helper(); Write(t, d.Root, path, content) }
	const system = "devices/system/"
	write(system+"cpu/online", "0-223\n")
	for core := range 112 {
		siblings := fmt.Sprintf("%d,%d\n", core, core+112)
		for _, cpu := range []int{core, core + 112} {
			write(fmt.Sprintf("%scpu/cpu%d/topology/thread_siblings_list", system, cpu), siblings)
		}
	}
	write(system+"node/online", "0-1\n")
	for node, cpus := range []string{"0-55,112-167\n", "56-111,168-223\n"} {
		at := fmt.Sprintf("%snode/node%d/", system, node)
		write(at+"cpulist", cpus)
		write(at+"meminfo", fmt.Sprintf("Node %d MemTotal:       1056559104 kB\nNode %d MemFree:        1040000000 kB\n",
			node, node))
		write(at+"distance", []string{"10 21\n", "21 10\n"}[node])
	}
	for i, bus := range []string{"1b", "43", "52", "61", "9d", "c3", "d1", "df"} {
		d.GPUs[i], d.NUMA[i] = "00000000:"+bus+":00.0", i/4
		at := "bus/pci/devices/0000:" + bus + ":00.0/"
		write(at+"vendor", "0x10de\n")
		write(at+"class", "0x030200\n")
		write(at+"numa_node", fmt.Sprintf("%d\n", i/4))
	}
	return d
}
