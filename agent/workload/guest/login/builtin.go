package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/term"
	"mvdan.cc/sh/moreinterp/coreutils"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// builtIn is a shell for images without one, with the usual small programs built in (ls, cat, cp, find, tar, …).
// Programs of the image take precedence.
type builtIn struct {
	in       *os.File
	out, err io.Writer
	env      []string
}

const greeting = `This image has no shell. You are in Muster's own: a POSIX shell with
base64 cat chmod cp find gzip ls mkdir mktemp mv rm shasum tar touch xargs.
`

func (b builtIn) run(command *string) int {
	runner, err := interp.New(interp.StdIO(b.in, b.out, b.err), interp.Env(expand.ListEnviron(b.env...)),
		interp.ExecHandlers(imageFirst))
	if err != nil {
		fmt.Fprintln(b.err, "muster:", err)
		return 125
	}
	switch {
	case command != nil:
		err = b.script(runner, strings.NewReader(*command))
	case term.IsTerminal(int(b.in.Fd())):
		err = b.interactive(runner)
	default:
		err = b.script(runner, b.in)
	}
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintln(b.err, "muster:", err)
	return 2
}

func (b builtIn) script(runner *interp.Runner, r io.Reader) error {
	program, err := syntax.NewParser().Parse(r, "")
	if err != nil {
		return err
	}
	return runner.Run(context.Background(), program)
}

// interactive reads statement by statement. Ctrl-C ends the running statement and not the shell.
func (b builtIn) interactive(runner *interp.Runner) error {
	fmt.Fprint(b.out, greeting)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	prompt := func() { fmt.Fprintf(b.out, "%s $ ", runner.Dir) }
	for {
		parser := syntax.NewParser()
		var failed error
		prompt()
		for statements, err := range parser.InteractiveSeq(b.in) {
			if failed = err; err != nil {
				break
			}
			if parser.Incomplete() {
				fmt.Fprint(b.out, "> ")
				continue
			}
			for _, s := range statements {
				err := b.interruptible(runner, s, interrupts)
				if runner.Exited() {
					return err
				}
			}
			prompt()
		}
		if failed == nil {
			return nil // the end of input
		}
		fmt.Fprintln(b.err, failed)
	}
}

func (b builtIn) interruptible(runner *interp.Runner, s *syntax.Stmt, interrupts <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-interrupts:
			cancel()
		case <-done:
		}
	}()
	return runner.Run(ctx, s)
}

// imageFirst runs the image's own programs, and the built-in ones for names that the image does not have.
func imageFirst(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	own := coreutils.ExecHandler(next)
	return func(ctx context.Context, args []string) error {
		c := interp.HandlerCtx(ctx)
		if _, err := interp.LookPathDir(c.Dir, c.Env, args[0]); err == nil {
			return next(ctx, args)
		}
		return own(ctx, args)
	}
}
