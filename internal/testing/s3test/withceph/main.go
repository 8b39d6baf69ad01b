// Command withceph runs a command with a Ceph that it starts before and stops after. The S3 stores of tests are then
// gateways of this Ceph (see package s3test), and a platform that the command starts keeps its volumes in another one.
//
//	go run ./internal/testing/s3test/withceph COMMAND…
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/cephtest"
	"github.com/musterhq/muster/internal/testing/child"
	"github.com/musterhq/muster/internal/testing/s3test"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withceph COMMAND…")
		os.Exit(2)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "withceph:", err)
		os.Exit(1)
	}
}

func run(command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	monitor, err := freeAddress()
	if err != nil {
		return err
	}
	ceph, err := cephtest.Start(monitor)
	if err != nil {
		return err
	}
	defer ceph.Stop()
	if err := ceph.AddUser(ctx); err != nil {
		return err
	}
	addr, err := freeAddress()
	if err != nil {
		return err
	}
	volumes, err := child.Start(ceph.Radosgw(addr)())
	if err != nil {
		return err
	}
	defer volumes.Kill()
	cfg := store.S3Config{Endpoint: "http://" + addr, Bucket: "volumes", Access: cephtest.AccessKey,
		Secret: cephtest.SecretKey}
	if err := s3test.Await(ctx, cfg); err != nil {
		return fmt.Errorf("%w\n%s", err, volumes.Output())
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "MUSTER_TEST_CEPH="+ceph.Conf, "MUSTER_STORE_S3="+cfg.Endpoint+"/"+cfg.Bucket,
		"MUSTER_STORE_ACCESS_KEY="+cfg.Access, "MUSTER_STORE_SECRET_KEY="+cfg.Secret)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// freeAddress returns an address of loopback at which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
