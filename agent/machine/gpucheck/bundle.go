package gpucheck

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// libraries are the C library and what the driver's libraries need of it.
var libraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
	"libgcc_s.so.1"}

// Prepare puts what a check needs in a container into a folder below parent, and returns the folder, to be mounted at
// Dir: this executable, and the loader and C library that it runs with here. So a check runs in any image, whether it
// has glibc, musl or nothing. A library, if given, is used instead of the driver's: the fake one. nccl is NCCL's
// library for the measurement with it (Reduce), "" = none.
//
// The folder is complete when it gets its name, which depends on what is in it; folders of other versions that are an
// hour old are removed.
func Prepare(parent, library, nccl string) (string, error) {
	mappings, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return "", err
	}
	libc, loader := mapped(string(mappings))
	if libc == "" || loader == "" {
		return "", errors.New("this program has no C library: it cannot be the check of the GPUs")
	}
	files := map[string]string{programFile: "/proc/self/exe", loaderFile: loader}
	for _, name := range libraries {
		path := filepath.Join(filepath.Dir(libc), name)
		if _, err := os.Stat(path); err == nil {
			files[name] = path
		}
	}
	if library != "" {
		files[libraryFile] = library
		if gpus := library + ".gpus"; regular(gpus) { // drives the fake library
			files["gpus"] = gpus
		}
	}
	if nccl != "" {
		more, err := ncclFiles(nccl, libc)
		if err != nil {
			return "", err
		}
		maps.Copy(files, more)
		if library == "" && !hasVerbs(more) {
			return "", errors.New("there is no libibverbs with drivers of RDMA devices on this host: install " +
				"libibverbs1 and ibverbs-providers")
		}
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		info, err := os.Stat(files[name])
		if err != nil {
			return "", err
		}
		fmt.Fprintln(hash, name, info.Size(), info.ModTime().UnixNano())
	}
	dir := filepath.Join(parent, "check-"+hex.EncodeToString(hash.Sum(nil))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	removeOld(parent, time.Now().Add(-time.Hour))
	fresh, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		return "", err
	}
	for name, path := range files {
		if err := copyFile(filepath.Join(fresh, name), path); err != nil {
			return "", errors.Join(err, os.RemoveAll(fresh))
		}
	}
	err = os.Chmod(fresh, 0o755) // an image's user reads it
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		if _, other := os.Stat(dir); other == nil { // another agent on this state was quicker
			err = nil
		}
		return dir, errors.Join(err, os.RemoveAll(fresh))
	}
	return dir, nil
}

// mapped returns the paths of the C library and the loader in a list of /proc/PID/maps.
func mapped(maps string) (libc, loader string) {
	for s := bufio.NewScanner(strings.NewReader(maps)); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 6 {
			continue
		}
		switch name := filepath.Base(fields[5]); {
		case name == "libc.so.6", strings.HasPrefix(name, "libc-2."):
			libc = fields[5]
		case strings.HasPrefix(name, "ld-linux"), strings.HasPrefix(name, "ld-2."), name == loaderFile:
			loader = fields[5]
		}
	}
	return libc, loader
}

// hasVerbs reports whether NCCL's files include what opens RDMA devices.
func hasVerbs(files map[string]string) bool {
	for name := range files {
		if strings.Contains(name, "-rdmav") {
			return files["libibverbs.so.1"] != ""
		}
	}
	return false
}

func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func removeOld(parent string, before time.Time) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		ours := strings.HasPrefix(e.Name(), "check-") || strings.HasPrefix(e.Name(), "new-")
		if info, err := e.Info(); ours && err == nil && info.ModTime().Before(before) {
			_ = os.RemoveAll(filepath.Join(parent, e.Name())) // what is still mounted goes with its container
		}
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
