package gpucheck

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// ncclFiles returns what NCCL needs in a container, by name: its library, libibverbs, which it opens by name, and the
// drivers of RDMA devices, which that opens, with everything that these were linked to. The image need not have any of
// it, and what it has is not used: the host's kernel decides which versions fit.
func ncclFiles(nccl, libc string) (map[string]string, error) {
	folders := []string{filepath.Dir(nccl), filepath.Dir(libc)}
	out := map[string]string{}
	var add func(name, path string)
	add = func(name, path string) {
		if _, known := out[name]; known || path == "" {
			return
		}
		out[name] = path
		f, err := elf.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		needed, _ := f.ImportedLibraries()
		for _, n := range needed {
			if !slices.Contains(libraries, n) && !strings.HasPrefix(n, "ld-linux") {
				add(n, findIn(folders, n))
			}
		}
	}
	if !native(nccl) {
		return nil, fmt.Errorf("%s is no library for this machine", nccl)
	}
	add(ncclFile, nccl)
	for _, name := range []string{"libibverbs.so.1", "libmlx5.so.1"} {
		add(name, findIn(folders, name))
	}
	drivers, _ := filepath.Glob(filepath.Join(filepath.Dir(libc), "libibverbs", "lib*-rdmav*.so"))
	for _, d := range drivers {
		add(filepath.Base(d), d)
	}
	return out, nil
}

// findIn returns the path of a library in the first folder that has it, "" if none has.
func findIn(folders []string, name string) string {
	for _, dir := range folders {
		if path := filepath.Join(dir, name); native(path) {
			return path
		}
	}
	return ""
}

func native(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == elf.ELFCLASS64
}

// verbsDrivers names the drivers in a folder as libibverbs' variable IBV_DRIVERS takes them: paths without the version
// at their ends, separated by colons.
func verbsDrivers(dir string) string {
	paths, _ := filepath.Glob(filepath.Join(dir, "lib*-rdmav*.so"))
	for i, p := range paths {
		paths[i] = p[:strings.LastIndex(p, "-rdmav")]
	}
	return strings.Join(paths, ":")
}
