// Command hostile tries to get out of its container and prints, for each way, "held" with the refusal, or "BREACH".
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	switch os.Args[1] {
	case "serve": // a neighbour that answers every connection
		l, err := net.Listen("tcp", ":9000")
		if err != nil {
			fmt.Println("BREACH serve:", err)
			os.Exit(1)
		}
		fmt.Println("serving")
		for {
			c, err := l.Accept()
			if err == nil {
				c.Close()
			}
		}
	case "node": // name, secret, and the address of a mate to reach
		mate := ""
		if len(os.Args) > 4 {
			mate = os.Args[4]
		}
		node(os.Args[2], os.Args[3], mate)
	case "scan":
		scan(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "machine":
		machine()
	case "reach": // name=address, "+name" must be reached
		for _, t := range os.Args[2:] {
			name, addr, _ := strings.Cut(t, "=")
			reach(name, addr)
		}
	case "forks":
		forks()
	case "memory":
		hog()
	case "disk": // the node's memory in MB
		limit, _ := strconv.ParseInt(os.Args[2], 10, 64)
		fill(limit)
	}
	fmt.Println("finished")
}

func verdict(name string, err error) {
	if err == nil {
		fmt.Printf("BREACH %s\n", name)
		return
	}
	fmt.Printf("held %s: %v\n", name, err)
}

func errno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// machine attacks the machine that runs the container.
func machine() {
	for name, kind := range map[string][3]int{
		"raw socket":      {syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP},
		"raw IPv6 socket": {syscall.AF_INET6, syscall.SOCK_RAW, 58},
		"packet socket":   {syscall.AF_PACKET, syscall.SOCK_RAW, 0x300},
		"vsock":           {40, syscall.SOCK_STREAM, 0},
	} {
		fd, err := syscall.Socket(kind[0], kind[1], kind[2])
		if err == nil {
			syscall.Close(fd)
		}
		verdict(name, err)
	}
	verdict("mount tmpfs", syscall.Mount("none", "/tmp", "tmpfs", 0, ""))
	verdict("mount proc", syscall.Mount("proc", "/tmp", "proc", 0, ""))
	verdict("remount the root", syscall.Mount("", "/proc/sys", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
	verdict("unmount a file of the agent's", syscall.Unmount("/etc/hosts", 0))
	verdict("user namespace", syscall.Unshare(syscall.CLONE_NEWUSER))
	verdict("mount namespace", syscall.Unshare(syscall.CLONE_NEWNS))
	verdict("network namespace", syscall.Unshare(syscall.CLONE_NEWNET))
	for name, nr := range map[string]uintptr{
		"bpf":               unix.SYS_BPF,
		"perf_event_open":   unix.SYS_PERF_EVENT_OPEN,
		"keyctl":            unix.SYS_KEYCTL,
		"init_module":       unix.SYS_INIT_MODULE,
		"kexec_load":        unix.SYS_KEXEC_LOAD,
		"reboot":            unix.SYS_REBOOT,
		"swapon":            unix.SYS_SWAPON,
		"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
		"userfaultfd":       unix.SYS_USERFAULTFD,
		"setns":             unix.SYS_SETNS,
	} {
		_, _, e := syscall.Syscall6(nr, 0, 0, 0, 0, 0, 0)
		if e == syscall.EPERM || e == syscall.ENOSYS || e == syscall.EACCES {
			verdict(name, e)
		} else {
			verdict(name, nil)
		}
	}
	verdict("a block device", syscall.Mknod("/tmp/disk", syscall.S_IFBLK|0o600, 254<<8))
	for _, f := range []string{"/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/net/tun", "/dev/fuse", "/proc/kcore",
		"/proc/kmsg"} {
		verdict("open "+f, open(f, os.O_RDONLY))
	}
	for _, f := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
		"/proc/sys/vm/drop_caches",
		"/proc/sys/net/ipv4/ip_forward", "/sys/kernel/uevent_helper", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname"} {
		verdict("write "+f, open(f, os.O_WRONLY))
	}
	verdict("escape the OOM killer", os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0o644))
	for _, pattern := range []string{"/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/*/*/release_agent",
		"/sys/fs/cgroup/devices/devices.allow", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"/sys/fs/cgroup/cgroup.procs"} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			verdict("write "+f, open(f, os.O_WRONLY))
		}
	}
	processes()
	sockets()
}

func open(path string, mode int) error {
	f, err := os.OpenFile(path, mode, 0)
	if err == nil {
		f.Close()
	}
	return err
}

// processes searches for a process outside the container, to trace it.
func processes() {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if pid == os.Getpid() || pid == 1 {
			continue // the container's own init: a renter may trace their own processes
		}
		verdict(fmt.Sprintf("trace process %d", pid), syscall.PtraceAttach(pid))
	}
	if len(all) > 2 {
		fmt.Printf("BREACH %d processes are seen\n", len(all))
	}
}

// sockets searches for a daemon's socket, in every folder and in the kernel's list.
func sockets() {
	for _, s := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
		"/run/muster/hold.sock"} {
		verdict("connect to "+s, dialUnix(s))
	}
	_ = filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
		if err != nil || path == "/proc" || path == "/sys" {
			return filepath.SkipDir
		}
		if d.Type()&os.ModeSocket != 0 {
			verdict("connect to "+path, dialUnix(path))
		}
		return nil
	})
	list, _ := os.ReadFile("/proc/net/unix")
	for _, line := range strings.Split(string(list), "\n") {
		if f := strings.Fields(line); len(f) == 8 && strings.HasPrefix(f[7], "@") {
			verdict("connect to "+f[7], dialUnix("\x00"+f[7][1:]))
		}
	}
}

func dialUnix(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

func reach(name, addr string) {
	wanted := strings.HasPrefix(name, "+")
	wait := 700 * time.Millisecond
	if wanted {
		wait = time.Minute
	}
	c, err := net.DialTimeout("tcp", addr, wait)
	if err == nil {
		c.Close()
	}
	if !wanted {
		verdict("reach "+name, err)
	} else if err != nil {
		fmt.Printf("BREACH the test: %s is not reached: %v\n", name, err)
	} else {
		fmt.Printf("held reach %s, as it should be\n", name)
	}
}

// forks starts children that do nothing until the kernel refuses.
func forks() {
	children := 0
	for {
		pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if pid == 0 && e == 0 {
			for {
				syscall.RawSyscall(syscall.SYS_PPOLL, 0, 0, 0)
			}
		}
		if e != 0 {
			if children > 60_000 {
				verdict("fork bomb", nil)
			}
			fmt.Printf("held fork bomb: %v after %d\n", errno(e), children)
			return
		}
		children++
	}
}

// hog allocates memory until it is killed.
func hog() {
	for i := 0; ; i++ {
		b, err := syscall.Mmap(-1, 0, 16<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			verdict("memory hog", errors.Join(err))
			return
		}
		for j := 0; j < len(b); j += 4096 {
			*(*byte)(unsafe.Pointer(&b[j])) = 1
		}
		if i > 64 {
			verdict("memory hog", nil)
			return
		}
	}
}

// fill writes into every folder that accepts a file until the kernel refuses, and prints how much each accepted.
func fill(limitMB int64) {
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7) // not zeros: zeros may take no space
	}
	for _, dir := range []string{"/", "/tmp", "/var"} {
		_ = os.MkdirAll(dir, 0o755)
		f, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			continue
		}
		var mb int64
		for err == nil && mb <= 2*limitMB {
			if _, err = f.Write(block); err == nil {
				mb++
			}
			if err == nil && mb%32 == 0 {
				err = f.Sync()
			}
		}
		f.Close()
		if mb > limitMB+limitMB/10 {
			fmt.Printf("BREACH disk filler in %s: %d MB of %d\n", dir, mb, limitMB)
			return
		}
		fmt.Printf("held disk filler in %s: %v after %d MB\n", dir, err, mb)
	}
}
