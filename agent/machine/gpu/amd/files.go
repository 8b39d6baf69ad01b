package amd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// readText returns the content of a file without the line's end; "" if it cannot be read.
func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func readInt(path string) (n int64, ok bool) {
	n, err := strconv.ParseInt(readText(path), 10, 64)
	return n, err == nil
}

// hwmon reads a sensor of a GPU. Its folder's number changes from boot to boot.
func (v Vendor) hwmon(dir string, names ...string) (n int64, ok bool) {
	for _, name := range names {
		found, _ := filepath.Glob(filepath.Join(dir, "hwmon/hwmon*", name))
		for _, path := range found {
			if n, ok := readInt(path); ok {
				return n, true
			}
		}
	}
	return 0, false
}

// pcie is a link; 0 is not known.
type pcie struct{ gen, genMax, width, widthMax int }

// pcieOf returns the link of the slot. A Radeon contains a PCIe switch between the slot and the GPU, and the link
// behind that switch says nothing about the slot. So pcieOf reads the link of the first of AMD's bridges above the
// GPU.
func pcieOf(dir string) pcie {
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return pcie{}
	}
	for {
		up := filepath.Dir(at)
		if readText(filepath.Join(up, "vendor")) != "0x1002" ||
			!strings.HasPrefix(readText(filepath.Join(up, "class")), "0x0604") {
			break
		}
		at = up
	}
	width := func(name string) int {
		n, _ := readInt(filepath.Join(at, name))
		return int(n)
	}
	return pcie{
		gen:    generation(readText(filepath.Join(at, "current_link_speed"))),
		genMax: generation(readText(filepath.Join(at, "max_link_speed"))),
		width:  width("current_link_width"), widthMax: width("max_link_width"),
	}
}

// generation returns the PCIe generation of a speed like "32.0 GT/s PCIe"; 0: none that is known.
func generation(speed string) int {
	rate, _, _ := strings.Cut(speed, " ")
	return map[string]int{"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5,
		"64.0": 6, "64": 6}[rate]
}
