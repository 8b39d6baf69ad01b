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

// execs finds what a shell script executes in its own place.
var execs = regexp.MustCompile(`(?:^|[\s;&|({])exec\s+(?:(?:-[cl]+|--|-a\s+\S+)\s+)*([^\s;&|]+)`)

var comments = regexp.MustCompile(`(?:^|\s)#[^\n]*`)

// lastCommand finds the program of a text's last command. Bash and BusyBox execute it in their own place if the text is
// the value of the option -c, which is what the shell form of CMD and ENTRYPOINT makes of a command. Dash does not.
var lastCommand = regexp.MustCompile(`(?:^|[;\n]|&&|\|\|)\s*(?:\w+=\S*\s+)*([^\s;&|]+)[^;&|\n]*$`)

// ownArguments are a script's words for all of its arguments.
var ownArguments = []string{"$@", "${@}", "$*", "${*}"}

// isInit reports whether a command, whose program is at path, is an init, or a script that executes one in its place, as
// the start scripts of many images do at their end: exec /init.
func isInit(argv []string, path string, env []string) bool { return findInit(argv, path, env, 0) }

func findInit(argv []string, path string, env []string, depth int) bool {
	if real, err := filepath.EvalSymlinks(path); inits[filepath.Base(path)] || err == nil && inits[filepath.Base(real)] {
		return true
	}
	if depth == maxDepth {
		return false
	}
	text, args := script(argv, path)
	for _, m := range execs.FindAllStringSubmatch(comments.ReplaceAllString(text, ""), -1) {
		next := []string{strings.Trim(m[1], `"'`)}
		if slices.Contains(ownArguments, next[0]) {
			next = args
		}
		if len(next) == 0 || next[0] == "" {
			continue
		}
		path, err := lookUp(next[0], env)
		if err != nil { // the script may make it
			path = next[0]
		}
		if findInit(next, path, env, depth+1) {
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
			text = strings.TrimRight(argv[i+1], "; \t\n")
			if m := lastCommand.FindStringSubmatch(text); m != nil && m[1] != "exec" && replacedByLast(path) {
				text += "\nexec " + m[1]
			}
			return text, argv[min(i+3, len(argv)):] // the word after the text is $0
		}
	}
	return "", nil
}

// replacedByLast reports whether a shell executes a text's last command in its own place. /bin/sh is bash in the images
// of Red Hat's family, and BusyBox in Alpine's.
func replacedByLast(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err == nil && slices.Contains([]string{"bash", "busybox"}, filepath.Base(real))
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
