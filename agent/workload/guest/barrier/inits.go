package barrier

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// inits are programs that expect to be PID 1.
var inits = map[string]bool{
	"init": true, "systemd": true, "tini": true, "tini-static": true, "docker-init": true, "dumb-init": true,
	"catatonit": true, "s6-svscan": true, "s6-overlay-suexec": true, "runit": true, "runit-init": true, "my_init": true,
}

// maxScript is how much of a script is read.
const maxScript = 64 << 10

// execs finds what a shell script executes in its own place. A comment does not count.
var execs = regexp.MustCompile(`(?m)^(?:[^#\n]*[\s;&|({])?exec\s+(?:-[cl]\s+|-a\s+\S+\s+)*([^\s;&|]+)`)

// isInit reports whether a command, whose program is at path, is an init, or a script that executes one in its place, as
// the start scripts of many images do at their end: exec /init.
func isInit(argv []string, path string) bool { return findInit(argv, path, 0) }

func findInit(argv []string, path string, depth int) bool {
	if real, err := filepath.EvalSymlinks(path); inits[filepath.Base(path)] || err == nil && inits[filepath.Base(real)] {
		return true
	}
	if depth == maxDepth {
		return false
	}
	text, args := script(argv, path)
	for _, m := range execs.FindAllStringSubmatch(text, -1) {
		next := []string{strings.Trim(m[1], `"'`)}
		if next[0] == "$@" {
			next = args
		}
		if len(next) > 0 && findInit(next, next[0], depth+1) {
			return true
		}
	}
	return false
}

// script returns what a command has a shell run, and the arguments of that: a script with its own interpreter line, or
// what the shell's arguments name. The text is empty if the command is something else.
func script(argv []string, path string) (text string, args []string) {
	if !slices.Contains(shells, filepath.Base(path)) {
		if text = head(path); !strings.HasPrefix(text, "#!") {
			text = ""
		}
		return text, argv[1:]
	}
	for i, arg := range argv {
		switch {
		case i == 0 || arg == "-o":
		case !strings.HasPrefix(arg, "-"):
			return head(arg), argv[i+1:]
		case !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, "c") && i+1 < len(argv):
			return argv[i+1], argv[min(i+3, len(argv)):] // the word after the text is $0
		}
	}
	return "", nil
}

// head returns the beginning of a text file, or nothing.
func head(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, maxScript)
	n, _ := f.ReadAt(b, 0)
	if bytes.IndexByte(b[:n], 0) >= 0 {
		return ""
	}
	return string(b[:n])
}
