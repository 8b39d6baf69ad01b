package cephtest

import (
	"context"
	"os/exec"
)

// Keys of the user of the object gateways.
const (
	AccessKey = "access"
	SecretKey = "secret-of-the-test"
)

// AddUser makes the user of the object gateways.
func (c *Cluster) AddUser(ctx context.Context) error {
	return c.run(ctx, "radosgw-admin", "user", "create", "--uid", "muster", "--display-name", "muster",
		"--access-key", AccessKey, "--secret-key", SecretKey)
}

// At is a Ceph that another process has started.
func At(conf string) *Cluster { return &Cluster{Conf: conf} }

// Radosgw returns the command that runs an object gateway at addr.
func (c *Cluster) Radosgw(addr string) func() *exec.Cmd {
	return func() *exec.Cmd {
		return c.command(context.Background(), "radosgw", "-n", "client.admin", "-f", "--rgw-frontends",
			"beast endpoint="+addr)
	}
}
