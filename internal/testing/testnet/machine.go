package testnet

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// Machine is a virtual machine: a kernel, systemd, an ssh server, and disks that end with the net. It runs in a host of
// the net that has no address of its own, so it reaches only the segment that it is joined to.
type Machine struct {
	*Host   // the host that it runs in: its End is a permanent power cut
	Address netip.Addr

	from *Host // the host from which this process connects to it
	key  ssh.Signer
	t    testing.TB

	mu     sync.Mutex
	client *ssh.Client // the open connection, or nil
}

// MachineConfig configures a machine.
type MachineConfig struct {
	Image   string // the folder that scripts/machine-image created
	Address string // its address in the segment, "203.0.113.60/24"
	From    *Host  // a host of the segment, from which this process connects
	Files   map[string]string
	Env     []string // KEY=value, for every unit
	// DockerGB is the size of the disk for Docker's data, a sparse file.
	DockerGB int
	MemoryMB int // 0: 4096
}

// bootPatience suffices for an emulated processor on a busy machine; without other load a boot takes a minute.
const bootPatience = 15 * time.Minute

// Machine starts a virtual machine with two NUMA nodes of one processor and half of its memory each, joined to a
// segment. It does not wait for the boot (see AwaitUp), so that several machines can boot at a time.
func (n *Net) Machine(name string, s *Segment, cfg MachineConfig) *Machine {
	n.t.Helper()
	at, err := netip.ParsePrefix(cfg.Address)
	if err != nil {
		n.t.Fatal("testnet:", err)
	}
	m := &Machine{Host: n.Host(name), Address: at.Addr(), from: cfg.From, t: n.t}
	if err := m.boot(s, cfg); err != nil {
		n.t.Fatalf("testnet: boot %s: %v", name, err)
	}
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("--- %s's console\n%s", name, tail(m.Console(), 40))
		}
	})
	return m
}

// Console returns what the machine wrote to its serial port.
func (m *Machine) Console() string {
	b, _ := os.ReadFile(filepath.Join(m.Dir(), "console"))
	return string(b)
}

func (m *Machine) boot(s *Segment, cfg MachineConfig) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	if m.key, err = ssh.NewSignerFromKey(private); err != nil {
		return err
	}
	in := func(file string) string { return filepath.Join(m.Dir(), file) }
	// To inspect a running test, log in with: nsenter --net=… ssh -i DIR/id root@ADDRESS.
	if block, err := ssh.MarshalPrivateKey(private, m.Name); err != nil {
		return err
	} else if err := os.WriteFile(in("id"), pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	if err := m.seed(in("seed.tar"), cfg); err != nil {
		return err
	}
	if err := sparse(in("docker.img"), int64(cfg.DockerGB)<<30); err != nil {
		return err
	}
	m.Run("mkfs.xfs", "-q", "-L", "docker", in("docker.img"))
	// The host's end of the link and the machine's are bridged.
	m.Join(s)
	for _, c := range []string{"link add br0 type bridge", "link set eth0 master br0", "tuntap add tap0 mode tap",
		"link set tap0 master br0", "link set tap0 up", "link set br0 up"} {
		m.Run("ip", strings.Fields(c)...)
	}
	disk := func(file, more string) string {
		return "file=" + file + ",format=raw,if=virtio,cache=unsafe," + more
	}
	memory := cmp.Or(cfg.MemoryMB, 4096)
	node := fmt.Sprintf("size=%dM", memory/2)
	// What the machine writes to the image goes to a file of its own, which is removed with the machine.
	args := slices.Concat(accelerator(), strings.Fields("-machine q35 -smp 2,sockets=2 -nodefaults "+
		"-no-user-config -display none -monitor none"), []string{
		"-m", strconv.Itoa(memory),
		"-object", "memory-backend-ram,id=m0," + node, "-object", "memory-backend-ram,id=m1," + node,
		"-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1",
		"-kernel", filepath.Join(cfg.Image, "vmlinuz"), "-initrd", filepath.Join(cfg.Image, "initrd.img"),
		"-append", kernelLine(m.Name, cfg.Env),
		"-serial", "file:" + in("console"), "-device", "virtio-rng-pci",
		"-drive", disk(filepath.Join(cfg.Image, "root.img"), "snapshot=on"), "-drive",
		disk(in("docker.img"), "discard=unmap"), "-drive", disk(in("seed.tar"), "readonly=on"),
		"-netdev", "tap,id=net0,ifname=tap0,script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=net0,mac=" + mac(m.Address)})
	log, err := os.Create(in("qemu.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := m.Command(context.Background(), "qemu-system-x86_64", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+m.Dir())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait() // it ends with its host at the latest
	return nil
}

// mac returns a hardware address that no other machine of the net has: QEMU gives all machines the same one.
func mac(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", b[1], b[2], b[3])
}

// kernelLine names the root device and sets long timeouts: an emulated processor on a shared machine is slow. Emulated
// processors sometimes lock up while they boot; after two minutes the machine boots again.
func kernelLine(name string, env []string) string {
	line := "root=/dev/vda rw console=ttyS0 quiet panic=-1 softlockup_panic=1 watchdog_thresh=60 mitigations=off " +
		"systemd.show_status=0 " +
		"systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900 " +
		"systemd.mask=systemd-binfmt.service systemd.mask=serial-getty@ttyS0.service systemd.mask=getty@tty1.service " +
		"systemd.hostname=" + name
	for _, kv := range env {
		line += " systemd.setenv=" + kv
	}
	return line
}

// accelerator selects the processor's own virtualisation if this machine has it. A /dev/kvm that can be opened proves
// nothing: one that only emulates for kernels other than Debian's can be opened, too.
func accelerator() []string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil && (bytes.Contains(info, []byte(" vmx ")) || bytes.Contains(info, []byte(" svm "))) {
		if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
			kvm.Close()
			return []string{"-accel", "kvm", "-cpu", "host"}
		}
	}
	return []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem"}
}

// seed is the disk with what distinguishes this machine from others of the same image.
func (m *Machine) seed(path string, cfg MachineConfig) error {
	files := map[string]string{
		"etc/systemd/network/net.network": "[Match]\nType=ether\nName=en*\n[Network]\nAddress=" + cfg.Address +
			"\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
		"etc/ssh/sshd_config.d/here.conf":  "PermitRootLogin prohibit-password\nUseDNS no\n",
		"root/.ssh/authorized_keys":        string(ssh.MarshalAuthorizedKey(m.key.PublicKey())),
		"etc/sysctl.d/90-no-watchdog.conf": "kernel.watchdog=0\n", // an emulated processor stalls at times
	}
	for name, content := range cfg.Files {
		files[strings.TrimPrefix(name, "/")] = content
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		mode := int64(0o644)
		if strings.HasSuffix(name, "authorized_keys") {
			mode = 0o600
		}
		err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

func sparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// AwaitUp returns when the machine's systemd has started everything, in a boot other than the given one.
func (m *Machine) AwaitUp(not string) (boot string) {
	m.t.Helper()
	var last string
	for deadline := time.Now().Add(bootPatience); ; time.Sleep(time.Second) {
		out, err := m.Try("cat /proc/sys/kernel/random/boot_id; systemctl is-system-running --wait")
		id, state, _ := strings.Cut(strings.TrimSpace(out), "\n")
		switch {
		case id != "" && id != not && state == "running":
			return id
		case id != "" && id != not && state == "degraded": // some of Debian's own units fail on a slow machine
			m.t.Logf("%s: units failed: %s", m.Name, m.Do("systemctl --failed --no-legend"))
			return id
		}
		last = fmt.Sprintf("%s (%v)", out, err)
		if time.Now().After(deadline) {
			m.t.Fatalf("testnet: %s does not come up within %s: %s", m.Name, bootPatience, last)
		}
	}
}

// Reboot reboots the machine with a command, such as "systemctl reboot" or an immediate reset, and returns when it is
// up.
func (m *Machine) Reboot(command string) {
	m.t.Helper()
	before := strings.TrimSpace(m.Do("cat /proc/sys/kernel/random/boot_id"))
	if c, err := m.login(); err == nil {
		// The connection may break without a proper end.
		defer time.AfterFunc(time.Minute, func() { m.logout(c) }).Stop()
	}
	_, _ = m.Try(command)
	m.AwaitUp(before)
}

// Do runs a shell command as the machine's root and returns its output. A failure fails the test.
func (m *Machine) Do(command string) string {
	m.t.Helper()
	out, err := m.Try(command)
	if err != nil {
		m.t.Fatalf("%s: %s: %v\n%s", m.Name, command, err, out)
	}
	return out
}

// Try is Do for a command that may fail.
func (m *Machine) Try(command string) (string, error) { return m.Feed(command, nil) }

// Feed is Try with standard input for the command.
func (m *Machine) Feed(command string, in io.Reader) (string, error) {
	c, err := m.login()
	if err != nil {
		return "", err
	}
	session, err := c.NewSession()
	if err != nil {
		m.logout(c)
		return "", err
	}
	defer session.Close()
	// Keepalives are off: a machine that stalls answers none.
	defer time.AfterFunc(bootPatience, func() { m.logout(c) }).Stop()
	session.Stdin = in
	out, err := session.CombinedOutput(command)
	if exit := (*ssh.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		m.logout(c)
	}
	return string(out), err
}

// login returns the connection that all commands share, because a login takes an emulated processor seconds.
func (m *Machine) login() (*ssh.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		return m.client, nil
	}
	address := netip.AddrPortFrom(m.Address, 22).String()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := m.from.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	c, chans, reqs, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:            "root",
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(m.key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}) // no other machine is on that segment
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	m.client = ssh.NewClient(c, chans, reqs)
	return m.client, nil
}

// logout closes the connection, so that the next command logs in again.
func (m *Machine) logout(c *ssh.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client == c {
		m.client = nil
	}
	c.Close()
}

// Put writes a file on the machine.
func (m *Machine) Put(path string, content []byte) {
	m.t.Helper()
	if out, err := m.Feed("cat >'"+path+"'", bytes.NewReader(content)); err != nil {
		m.t.Fatalf("%s: write %s: %v\n%s", m.Name, path, err, out)
	}
}
