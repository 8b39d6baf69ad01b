// Package demojob is the program in the demo's image: a real, small distributed job, and simple programs for tests. It
// is static and needs nothing from its image.
//
//	train           data-parallel training over all ranks (see train.go)
//	sleep SECONDS   do nothing for a while
//	nap SECONDS     the same, or until the file NAP_UNTIL exists; print when it began and ended, in unix milliseconds
//	exit CODE       end with a code
//	env             print the environment, sorted
//	serve PORT      show a web page about this rank, until SIGTERM
package demojob

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Run executes one command line and returns the exit code. env is the environment as KEY=value.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 1 && args[0] == "train":
		cfg, err := readConfig(env)
		if err == nil {
			err = train(ctx, cfg, stdout)
		}
		if err != nil {
			fmt.Fprintln(stderr, "train:", err)
			return 1
		}
		return 0
	case len(args) == 2 && args[0] == "sleep":
		if s, err := strconv.ParseFloat(args[1], 64); err == nil && s >= 0 {
			return sleep(ctx, time.Duration(s*float64(time.Second)))
		}
	case len(args) == 2 && args[0] == "nap":
		if s, err := strconv.ParseFloat(args[1], 64); err == nil && s >= 0 {
			fmt.Fprintln(stdout, "began", time.Now().UnixMilli())
			code := nap(ctx, time.Duration(s*float64(time.Second)), valueOf(env, "NAP_UNTIL"))
			fmt.Fprintln(stdout, "ended", time.Now().UnixMilli())
			return code
		}
	case len(args) == 2 && args[0] == "exit":
		if code, err := strconv.Atoi(args[1]); err == nil && code >= 0 && code < 256 {
			return code
		}
	case len(args) == 2 && args[0] == "serve":
		if port, err := strconv.Atoi(args[1]); err == nil && port > 0 && port < 65536 {
			return serve(ctx, port, env, stdout, stderr)
		}
	case len(args) == 1 && args[0] == "env":
		for _, kv := range slices.Sorted(slices.Values(env)) {
			fmt.Fprintln(stdout, kv)
		}
		return 0
	}
	fmt.Fprintln(stderr, "usage: muster-demo-job train | sleep SECONDS | nap SECONDS | exit CODE | env | serve PORT")
	return 2
}

func valueOf(env []string, key string) (value string) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			value = v
		}
	}
	return value
}

// nap is a sleep that a file ends normally.
func nap(ctx context.Context, d time.Duration, until string) int {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end) && !exists(until); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 128 + int(syscall.SIGTERM)
		}
	}
	return 0
}

// exists reports whether there is a file of that name; "" names none.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// sleep exits with 143 on SIGTERM, as a program without a handler would.
func sleep(ctx context.Context, d time.Duration) int {
	select {
	case <-time.After(d):
		return 0
	case <-ctx.Done():
		return 128 + int(syscall.SIGTERM)
	}
}
