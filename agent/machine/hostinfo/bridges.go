package hostinfo

import (
	"cmp"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// IOMMUs returns how many IOMMUs the kernel uses. sysfs is /sys; "" = this machine's.
func IOMMUs(sysfs string) int {
	units, _ := os.ReadDir(filepath.Join(cmp.Or(sysfs, "/sys"), "class/iommu"))
	return len(units)
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Redirecting returns the PCI bridges above NVIDIA's GPUs that send traffic between their ports up to the processor
// (Access Control Services); none if there is one GPU at most. sysfs is /sys; "" = this machine's.
func Redirecting(sysfs string) []string {
	var out []string
	gpus := 0
	devices, _ := filepath.Glob(filepath.Join(cmp.Or(sysfs, "/sys"), "bus/pci/devices/*"))
	for _, device := range devices {
		fact := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(device, name))
			return strings.TrimSpace(string(b))
		}
		class := fact("class")
		if fact("vendor") != "0x10de" || !strings.HasPrefix(class, "0x0300") && !strings.HasPrefix(class, "0x0302") {
			continue
		}
		gpus++
		path, err := filepath.EvalSymlinks(device)
		if err != nil {
			continue
		}
		for dir := filepath.Dir(path); pciAddress.MatchString(filepath.Base(dir)); dir = filepath.Dir(dir) {
			config, err := os.ReadFile(filepath.Join(dir, "config"))
			if err == nil && redirects(config) && !slices.Contains(out, filepath.Base(dir)) {
				out = append(out, filepath.Base(dir))
			}
		}
	}
	if gpus < 2 {
		return nil
	}
	return out
}

// redirects reports whether a device's PCI configuration has request or completion redirect of ACS on. Without rights,
// the kernel shows the first 64 bytes only.
func redirects(config []byte) bool {
	const capability, requestRedirect, completionRedirect = 0x000d, 1 << 2, 1 << 3
	for at, n := 0x100, 0; at >= 0x100 && at+8 <= len(config) && n < 64; n++ {
		head := binary.LittleEndian.Uint32(config[at:])
		if head&0xffff == capability {
			return binary.LittleEndian.Uint16(config[at+6:])&(requestRedirect|completionRedirect) != 0
		}
		at = int(head >> 20)
	}
	return false
}
