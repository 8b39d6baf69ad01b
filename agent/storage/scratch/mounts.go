package scratch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mountLine is one line of the kernel's list of mounts. The kernel returns the list without accessing the disk, so it
// can be read even if the disk is dead or hangs.
type mountLine struct {
	point   string
	options []string // options of the file system, not of this mount of it
}

// mountLines lists the mounts of the machine, in the order in which they were made.
func mountLines() ([]mountLine, error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(hostMounts)), "mountinfo"))
	if errors.Is(err, fs.ErrPermission) { // see onHost
		text, err = os.ReadFile("/proc/thread-self/mountinfo")
	}
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text)), nil
}

// parseMounts parses the format that proc_pid_mountinfo(5) describes.
func parseMounts(text string) (out []mountLine) {
	for line := range strings.Lines(text) {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(t) < 3 {
			continue
		}
		out = append(out, mountLine{point: unescape.Replace(h[4]), options: strings.Split(t[2], ",")})
	}
	return out
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountedAt returns the scratch that is mounted at path; ok is false if none is. path may contain links: its last two
// parts, this agent's folder and the run's, are unique.
func mountedAt(lines []mountLine, path string) (at mountLine, ok bool) {
	last := "/" + filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
	for _, l := range slices.Backward(lines) {
		if l.point == path || strings.HasSuffix(l.point, last) {
			return l, true
		}
	}
	return mountLine{}, false
}

// below returns the mount that contains the file of the given name.
func below(lines []mountLine, path string) (on mountLine) {
	for _, l := range lines { // later mounts cover earlier ones
		if len(l.point) >= len(on.point) && (l.point == "/" || l.point == path || strings.HasPrefix(path, l.point+"/")) {
			on = l
		}
	}
	return on
}

// condition returns why a file system accepts no more writes, or "". File systems stop accepting writes by themselves
// when their disk reports errors.
func (l mountLine) condition() string {
	switch {
	case slices.Contains(l.options, "shutdown"):
		return "has failed and was shut down by the kernel"
	case slices.Contains(l.options, "ro"), slices.Contains(l.options, "emergency_ro"):
		return "has become read-only"
	}
	return ""
}

// Lost describes what happened to the scratch at path, or to its disk, that makes it unwritable. It returns "" if the
// scratch is writable, or if nothing is mounted there: then only its user still has it, or it is gone. It does not
// access the disk.
func Lost(path string) (why string, err error) {
	lines, err := mountLines()
	if err != nil {
		return "", err
	}
	at, ok := mountedAt(lines, path)
	if !ok {
		return "", nil
	}
	if why := below(lines, filepath.Dir(at.point)).condition(); why != "" {
		return "the host's scratch disk " + why, nil
	}
	if why := at.condition(); why != "" {
		return "the node's scratch " + why, nil
	}
	return "", nil
}
