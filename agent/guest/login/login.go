// Package login is a process of a shell inside a renter's container: it becomes the user's own shell or command as sshd
// would, and where the image has no shell it is one itself, so that every image can be looked into.
package login

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Request is what to be.
type Request struct {
	Home       bool    // begin in the user's home, else where the image begins
	Cols, Rows int     // of the terminal; 0 = not known
	Command    *string // nil: an interactive shell
}

// Run becomes it. It returns an exit code only where this process itself was the shell, or nothing could run.
func Run(r Request) int {
	if r.Cols > 0 && r.Rows > 0 {
		_ = unix.IoctlSetWinsize(0, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(r.Cols), Row: uint16(r.Rows)})
	}
	u := currentUser("/etc/passwd")
	env := u.environ(os.Environ())
	if r.Home {
		if err := os.Chdir(u.home); err != nil {
			_ = os.Chdir("/")
		}
	}
	shell := findShell(u.shell)
	if shell == "" {
		return builtIn{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: env}.run(r.Command)
	}
	env = set(env, "SHELL", shell)
	name := filepath.Base(shell)
	args := []string{"-" + name} // a login shell, as sshd starts it
	if r.Command != nil {
		args = []string{name, "-c", *r.Command}
	}
	err := syscall.Exec(shell, args, env)
	fmt.Fprintf(os.Stderr, "muster: %s cannot be run: %v\n", shell, err)
	return 126
}

// user is who this process is, by the image's own book.
type user struct{ name, home, shell string }

func currentUser(passwd string) user {
	uid := os.Getuid()
	u := user{name: strconv.Itoa(uid), home: os.Getenv("HOME")}
	if f, err := os.Open(passwd); err == nil {
		defer f.Close()
		u = u.find(f, uid)
	}
	if u.home == "" {
		u.home = "/"
	}
	return u
}

func (u user) find(passwd io.Reader, uid int) user {
	for s := bufio.NewScanner(passwd); s.Scan(); {
		if f := strings.Split(s.Text(), ":"); len(f) >= 7 && f[2] == strconv.Itoa(uid) {
			return user{f[0], f[5], f[6]}
		}
	}
	return u
}

// environ is the container's environment with what a login adds.
func (u user) environ(env []string) []string {
	env = set(env, "HOME", u.home)
	env = set(env, "USER", u.name)
	return set(env, "LOGNAME", u.name)
}

func set(env []string, name, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	return append(env, name+"="+value)
}

// findShell is the first of these that can be run; "" when the image has none. A shell whose job is to refuse (nologin)
// is passed over: the renter is not a stranger to their own container.
func findShell(own string) string {
	for _, s := range []string{own, "/bin/bash", "/usr/bin/bash", "/bin/sh", "/bin/ash", "/bin/dash", "/bin/zsh",
		"/busybox/sh"} {
		switch filepath.Base(s) {
		case "nologin", "false", "true", ".", "sync", "halt", "shutdown":
			continue
		}
		info, err := os.Stat(s)
		if err == nil && info.Mode().IsRegular() && unix.Access(s, unix.X_OK) == nil {
			return s
		}
	}
	return ""
}
