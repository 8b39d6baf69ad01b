package sharedtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inLinux is set in the environment of a test that runs in the Linux of InLinux.
const inLinux = "MUSTER_TEST_IN_LINUX"

// InLinux runs the calling test once more, in a Linux of the distribution that runs as a process and serves a file
// system by NFS to itself. It reports whether the caller is that run, and otherwise fails the test if that run failed.
func InLinux(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inLinux) != "" {
		return true
	}
	dir := t.TempDir()
	script, err := scripts.ReadFile("nfs.sh")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "nfs.sh"), script, 0o700)
	}
	disk := filepath.Join(dir, "disk")
	if err == nil {
		err = os.WriteFile(disk, nil, 0o600)
	}
	if err == nil {
		err = os.Truncate(disk, 2<<30)
	}
	self, bad := os.Executable()
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	out, err := exec.CommandContext(t.Context(), "linux.uml", "mem=1500M", "root=/dev/root", "rootfstype=hostfs",
		"rootflags=/", "ro", "ubdb="+disk, "init=/bin/bash", "con0=fd:0,fd:1", "con=null", "quiet", "--",
		filepath.Join(dir, "nfs.sh"), "env", "TMPDIR=/mnt/tmp", inLinux+"=1", self, "-test.run=^"+t.Name()+"$", "-test.v",
		"-test.timeout=5m").CombinedOutput()
	text := strings.ReplaceAll(string(out), "\r", "")
	t.Log(text)
	if err != nil || !strings.Contains(text, "\n--- PASS: "+t.Name()+" ") || !strings.Contains(text, "\nPASS\n") {
		t.Errorf("the test in the other Linux has failed: %v", err)
	}
	return false
}

// NFS is the NFS server of a run of InLinux.
type NFS struct{}

// Served is the folder that the server exports, as the server sees it.
const Served = "/mnt/served"

// Mount mounts the file system with separate caches, as another host would.
func (NFS) Mount(t *testing.T, _ string) string {
	t.Helper()
	point := t.TempDir()
	command(t, "mount -t nfs -o vers=4.2,nosharecache 127.0.0.1:/ "+point)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", point).Run() })
	return point
}

// Hang cuts the network between clients and server.
func (NFS) Hang(t *testing.T) { command(t, "ip link set lo down") }

// Resume restores it.
func (NFS) Resume(t *testing.T) { command(t, "ip link set lo up") }

// Restart stops the server, with all it knows of its clients, and starts it again.
func (NFS) Restart(t *testing.T) { command(t, "rpc.nfsd 0 && rpc.nfsd --no-nfs-version 3 4") }

func command(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}
