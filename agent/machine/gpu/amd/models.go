package amd

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// models are the names of GPUs by device and revision, as in libdrm's amdgpu.ids. The same GPU must have the same name
// on every host, and not all hosts have that file.
var models = map[[2]string]string{
	{"738c", "01"}: "AMD Instinct MI100",
	{"7408", "00"}: "AMD Instinct MI250X",
	{"740c", "01"}: "AMD Instinct MI250X / MI250",
	{"740f", "02"}: "AMD Instinct MI210",
	{"74a0", "00"}: "AMD Instinct MI300A",
	{"74a1", "00"}: "AMD Instinct MI300X",
	{"74a5", "00"}: "AMD Instinct MI325X",
	{"75a0", "00"}: "AMD Instinct MI350X",
	{"75a3", "00"}: "AMD Instinct MI355X",
	{"7448", "00"}: "AMD Radeon Pro W7900",
	{"744c", "c8"}: "AMD Radeon RX 7900 XTX",
	{"744c", "cc"}: "AMD Radeon RX 7900 XT",
	{"744c", "ce"}: "AMD Radeon RX 7900 GRE",
	{"745e", "cc"}: "AMD Radeon Pro W7800",
	{"7550", "c0"}: "AMD Radeon RX 9070 XT",
	{"7551", "c0"}: "AMD Radeon AI PRO R9700",
}

// idsFile is libdrm's list.
var idsFile = "/usr/share/libdrm/amdgpu.ids"

// model returns a GPU's name: from the list above, from libdrm's, from the board itself, or made of its number.
func (v Vendor) model(n node) string {
	dir := v.dir(n)
	number := strings.TrimPrefix(readText(filepath.Join(dir, "device")), "0x")
	revision := strings.TrimPrefix(readText(filepath.Join(dir, "revision")), "0x")
	if name := models[[2]string{number, revision}]; name != "" {
		return name
	}
	return cmp.Or(listed(number, revision), readText(filepath.Join(dir, "product_name")),
		fmt.Sprintf("AMD GPU %04x rev %s", n.props["device_id"], cmp.Or(revision, "?")))
}

// listed looks a GPU up in libdrm's list: lines of "744C,	C8,	AMD Radeon RX 7900 XTX".
func listed(number, revision string) string {
	f, err := os.Open(idsFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.SplitN(s.Text(), ",", 3)
		if len(fields) == 3 && strings.EqualFold(strings.TrimSpace(fields[0]), number) &&
			strings.EqualFold(strings.TrimSpace(fields[1]), revision) {
			return strings.TrimSpace(fields[2])
		}
	}
	return ""
}

// rocm are the ROCm releases that came with AMD's own driver package, whose module has the version 6.MINOR.PATCH or
// newer. The packages' names show the release (amdgpu-dkms 6.12.12.60400 is of ROCm 6.4.0), and since 7.0 that of the
// driver (6.14.14.30100100 is of driver 30.10.1), which AMD's documentation maps to ROCm. AMD tests a driver with newer
// and older releases, too; this is the newest that is certain.
var rocm = []struct {
	minor, patch int
	release      string
}{
	{3, 0, "6.0"},   // 6.3.6
	{7, 0, "6.1"},   // 6.7.0
	{8, 0, "6.2"},   // 6.8.5
	{10, 0, "6.3"},  // 6.10.5
	{12, 0, "6.4"},  // 6.12.12
	{14, 0, "7.0"},  // 6.14.14, driver 30.10
	{16, 6, "7.1"},  // 6.16.6, driver 30.20
	{16, 13, "7.2"}, // 6.16.13, driver 30.30
}

// ROCm returns the newest ROCm that a driver is known to run; "" if that is not known, as for the kernel's own
// driver, which has no version.
func ROCm(driver string) string {
	parts := strings.Split(driver, ".")
	if len(parts) < 2 || parts[0] != "6" {
		return ""
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return ""
	}
	patch := 0
	if len(parts) > 2 {
		patch, _ = strconv.Atoi(parts[2]) // 0 is the oldest
	}
	newest := ""
	for _, r := range rocm {
		if minor > r.minor || minor == r.minor && patch >= r.patch {
			newest = r.release
		}
	}
	return newest
}
