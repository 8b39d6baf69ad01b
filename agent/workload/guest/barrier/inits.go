package barrier

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// inits are programs that refuse to work, or work otherwise, if they are not PID 1. tini, dumb-init and catatonit are
// not among them: they pass a signal to their child only, and everything else would end with them (endTree).
var inits = map[string]bool{
	"init": true, "systemd": true, "s6-svscan": true, "s6-overlay-suexec": true, "runit": true, "runit-init": true,
	"my_init": true,
}

// maxScript is how much of a script is read, and maxScripts how many of them are.
const maxScript, maxScripts = 64 << 10, 32

// lastCommand finds the program of a text's last command. Bash and BusyBox execute it in their own place if the text is
// the value of the option -c, which is what the shell form of CMD and ENTRYPOINT makes of a command. Dash does not.
var lastCommand = regexp.MustCompile(`(?:^|[;\n]|&&|\|\|)\s*(?:\w+=\S*\s+)*([^\s;&|]+)[^;&|\n]*$`)

// ownArguments are a script's words for all of its arguments.
var ownArguments = []string{"$@", "${@}", "$*", "${*}"}

// isInit reports whether a command, whose program is at path, is an init, or a script that executes one in its place,
// as the start scripts of many images do at their end: exec /init.
func isInit(argv []string, path string, env []string) bool {
	seen := map[string]bool{}
	return findInit(argv, path, env, seen)
}

func findInit(argv []string, path string, env []string, seen map[string]bool) bool {
	if real, err := filepath.EvalSymlinks(path); inits[filepath.Base(path)] || err == nil && inits[filepath.Base(real)] {
		return true
	}
	key := path + "\x00" + strings.Join(argv, "\x00")
	if seen[key] || len(seen) == maxScripts {
		return false
	}
	seen[key] = true
	text, args := script(argv, path)
	for _, next := range executed(text, args) {
		path, err := lookUp(next[0], env)
		if err != nil { // the script may make it
			path = next[0]
		}
		if findInit(next, path, env, seen) {
			return true
		}
	}
	return false
}

// executed returns the command lines that a script executes in its own place. args are its arguments.
func executed(text string, args []string) (out [][]string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		var words []string
		for _, w := range strings.Fields(line) {
			if strings.HasPrefix(w, "#") {
				break
			}
			words = append(words, strings.Fields(separators.Replace(w))...)
		}
		for i, w := range words {
			if w == "exec" {
				if next := commandOf(words[i+1:], args); len(next) > 0 {
					out = append(out, next)
				}
			}
		}
	}
	return out
}

// separators makes words of what separates commands.
var separators = strings.NewReplacer(";", " ; ", "&", " & ", "|", " | ", "(", " ( ", ")", " ) ")

// wrappers are programs that execute another one after their own arguments, and how many arguments these are.
var wrappers = map[string]int{"env": 0, "nice": 0, "gosu": 1, "su-exec": 1, "setpriv": 0}

// commandOf returns the command line that follows exec in a script: without exec's options, without programs that only
// change the environment or the user, and with the script's own arguments.
func commandOf(words, args []string) (out []string) {
	for skip, i := 0, 0; i < len(words); i++ {
		w := strings.Trim(words[i], `"'`)
		own := slices.Contains(ownArguments, w)
		switch {
		case w == ";" || w == "&" || w == "|" || w == "(" || w == ")":
			return out
		case own:
			out = append(out, args...)
		case len(out) > 0:
			out = append(out, w)
		case skip > 0:
			skip--
		case w == "-a":
			skip = 1
		case strings.HasPrefix(w, "-") || strings.Contains(w, "="):
		default:
			n, wraps := wrappers[filepath.Base(w)]
			if skip = n; !wraps {
				out = append(out, w)
			}
		}
	}
	return out
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
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a FIFO
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b := make([]byte, maxScript)
	n, _ := f.ReadAt(b, 0)
	if bytes.IndexByte(b[:n], 0) >= 0 {
		return ""
	}
	return string(b[:n])
}
