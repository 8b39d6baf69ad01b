package cuda

import (
	"bufio"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
)

// find returns the path of the driver's CUDA library, and those of the libraries that it loads by name while it works:
// a container's loader may not find them, as an image may have no loader's cache.
//
// In a container the driver's libraries are mounts, made by NVIDIA's runtime or by CDI. An image can contain files with
// the same names, and a library of another version that it brings would fail, or say whatever the image's maker likes;
// but it cannot make mounts. So the mounts decide. Without any, as on the host itself, the loader decides.
func find(library, mountinfo string) (path string, before []string, err error) {
	if library != "" {
		return library, nil, nil
	}
	for _, at := range mounts(mountinfo) {
		switch name := filepath.Base(at); {
		case strings.HasPrefix(name, "libcuda.so."):
			if native(at) { // the 32-bit libraries are there too
				path = at
			}
		case strings.HasPrefix(name, "libnvidia-ptxjitcompiler.so."), strings.HasPrefix(name, "libnvidia-gpucomp.so."),
			strings.HasPrefix(name, "libnvidia-nvvm.so."):
			if native(at) {
				before = append(before, at)
			}
		}
	}
	if path == "" {
		return "libcuda.so.1", nil, nil
	}
	return path, before, nil
}

// mounts returns where something is mounted, in the order of the list.
func mounts(mountinfo string) (out []string) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 5 {
			out = append(out, fields[4])
		}
	}
	return out
}

// native reports whether a library is for 64-bit programs, as this one is.
func native(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == elf.ELFCLASS64
}
