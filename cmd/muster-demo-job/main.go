// Command muster-demo-job is what the demo's image runs; see package internal/devstack/demojob.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/musterhq/muster/internal/devstack/demojob"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := demojob.Run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
