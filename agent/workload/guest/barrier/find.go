package barrier

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// NotFound is returned if the image does not contain the command. Any other error of Find means that it does, and
// cannot run it.
type NotFound struct{ text string }

func (e NotFound) Error() string { return e.text }

// program is a command found in the image.
type program struct {
	path string
	argv []string
	init bool // the program is an init itself
}

// defaultPath is what execvp uses without PATH.
const defaultPath = "/bin:/usr/bin"

// Find resolves a command as execvp would for the current user in the current folder, and checks what exec would
// otherwise find out only after the barrier: the interpreter of a script, and the loader and machine of a binary.
func Find(argv, env []string) (program, error) {
	if len(argv) == 0 || argv[0] == "" {
		return program{}, NotFound{"no command was given"}
	}
	path, err := lookUp(argv[0], env)
	if err != nil {
		return program{}, err
	}
	if err := runnable(path, 0); err != nil {
		return program{}, err
	}
	return program{path: path, argv: argv, init: isInit(argv, path, env)}, nil
}

func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		err := executable(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return "", NotFound{fmt.Sprintf("command not found: %s is not in the image", name)}
		}
		if err != nil {
			return "", fmt.Errorf("cannot run %s: %w", name, err)
		}
		return name, nil
	}
	search := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	var denied error
	for _, dir := range strings.Split(search, ":") {
		if dir == "" {
			dir = "."
		}
		path := dir + "/" + name
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = fmt.Errorf("cannot run %s: %w", path, err)
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", NotFound{fmt.Sprintf("command not found: %s (looked in %s)", name, search)}
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("not a file: %w", fs.ErrPermission)
	}
	// This checks with the user and the capabilities that exec will have.
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	return nil
}

// maxDepth is how many interpreters of interpreters the kernel follows.
const maxDepth = 4

// runnable reads what exec reads of the file and of the files that it needs, its interpreter or loader. So a file
// system that is slow to return them delays this rank before the barrier, where no other rank waits for it with its
// time. A file that is executable but not readable is left to exec.
func runnable(path string, depth int) error {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 4096) // a page
	n, _ := f.ReadAt(head, 0)
	switch text := string(head[:n]); {
	case strings.HasPrefix(text, "#!"):
		line, _, _ := strings.Cut(text[2:], "\n")
		if strings.HasSuffix(line, "\r") { // for the kernel, it is part of the last word
			return fmt.Errorf("cannot run %s: its lines end in CRLF, as on Windows; convert it: sed -i 's/\\r$//' %s",
				path, path)
		}
		if words := strings.Fields(line); len(words) > 0 {
			return needs(path, "interpreter", words[0], depth)
		}
	case strings.HasPrefix(text, elf.ELFMAG):
		return runnableELF(path, f, depth)
	case depth == 0: // program.shell may run it
		_ = runnable("/bin/sh", depth+1)
	}
	return nil
}

func runnableELF(path string, f *os.File, depth int) error {
	bin, err := elf.NewFile(f)
	if err != nil {
		return nil // leave it to exec
	}
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if bin.Machine != machine && !(runtime.GOARCH == "amd64" && bin.Machine == elf.EM_386) {
		return fmt.Errorf("cannot run %s: it is built for %v, this host is %s", path, bin.Machine, runtime.GOARCH)
	}
	for _, p := range bin.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			return nil
		}
		return needs(path, "loader", strings.TrimRight(string(b), "\x00"), depth)
	}
	return nil
}

func needs(path, what, other string, depth int) error {
	if err := executable(other); err != nil {
		return NotFound{fmt.Sprintf("command not found: %s needs the %s %s, which is not in the image", path, what, other)}
	}
	if depth == maxDepth {
		return nil // leave it to exec
	}
	return runnable(other, depth+1)
}
