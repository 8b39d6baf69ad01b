// Package login is a process of a shell inside a renter's container: it executes the user's own shell or command as
// sshd would. If the image has no shell the process is a shell itself, so that every image can be inspected.
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

// Request says what to execute.
type Request struct {
	Home       bool    // begin in the user's home, else in the image's working directory
	Cols, Rows int     // size of the terminal; 0 = unknown
	Command    *string // nil: an interactive shell
}

// Run executes it. It returns an exit code only if this process itself was the shell, or if nothing could run.
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

// user returns the user of this process, as the image's /etc/passwd describes it.
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

// environ returns the container's environment with the variables that a login adds.
func (u user) environ(env []string) []string {
	env = set(env, "HOME", u.home)
	env = set(env, "USER", u.name)
	return set(env, "LOGNAME", u.name)
}

func set(env []string, name, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	return append(env, name+"="+value)
}

// findShell returns the first of these that can run, or "" if the image has none. It skips shells that only refuse
// (nologin), because renters may use their own containers.
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
