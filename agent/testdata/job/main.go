// Command job is the workload of the agent's tests.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch os.Args[1] {
	case "exit": // exit CODE
		code, _ := strconv.Atoi(os.Args[2])
		fmt.Println("hello from rank", os.Getenv("NODE_RANK"), os.Getenv("NNODES"), os.Getenv("SECRET"))
		fmt.Fprintln(os.Stderr, "leaving with", code)
		os.Exit(code)
	case "nap": // nap SECONDS, and print its begin and end, in unix milliseconds
		seconds, _ := strconv.Atoi(os.Args[2])
		from := time.Now()
		time.Sleep(time.Duration(seconds) * time.Second)
		fmt.Println("slept", from.UnixMilli(), time.Now().UnixMilli())
	case "scratch": // prints a scratch's contents, fills it and marks it; then waits for TERM
		scratch := os.Getenv("MUSTER_SCRATCH")
		left, err := os.ReadDir(scratch)
		fmt.Println("empty", err == nil && len(left) == 0)
		f, err := os.Create(filepath.Join(scratch, "mark"))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		var got int64
		for step := int64(64 << 20); step >= 1<<20; { // reserved, not written: saves writing a gigabyte
			if err := syscall.Fallocate(int(f.Fd()), 0, got, step); err != nil {
				if err != syscall.ENOSPC {
					fmt.Println(err)
				}
				step /= 2
				continue
			}
			got += step
		}
		fmt.Println("room of about a gigabyte", got > 960_000_000 && got <= 1_000_000_000, got)
		_, err = f.WriteAt([]byte(os.Args[2]), 0)
		fmt.Println("written", err == nil && f.Sync() == nil)
		fallthrough
	case "run", "linger": // waits for TERM, then exits with 0: at once, or after two seconds
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		fmt.Println("running")
		<-term
		fmt.Println("received SIGTERM")
		if os.Args[1] == "linger" {
			time.Sleep(2 * time.Second)
		}
	case "save": // save SECONDS CODE: waits for TERM, then so long for a checkpoint
		seconds, _ := strconv.Atoi(os.Args[2])
		code, _ := strconv.Atoi(os.Args[3])
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		<-term
		fmt.Println("received SIGTERM")
		time.Sleep(time.Duration(seconds) * time.Second)
		os.Exit(code)
	case "beat": // tries everything that could look like a heartbeat of its node
		_, err := net.Dial("unix", "/run/muster/hold.sock")
		fmt.Println("cannot connect to the hold socket", err != nil)
		_, err = os.Create(filepath.Join(os.Args[2], "release"))
		fmt.Println("cannot write the node's files", err != nil)
		for {
			for _, a := range []string{"10.77.0.1:51820", "127.0.0.1:51820", os.Args[3]} {
				if c, err := net.Dial("udp", a); err == nil {
					// A packet that looks like WireGuard's keepalive.
					c.Write([]byte{4, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
					c.Write([]byte{'M', 's', 'R', 17})
					c.Close()
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	case "pin": // pin FILE BYTES: maps a file that stands for NVIDIA's control device, shared, and ignores TERM
		bytes, _ := strconv.Atoi(os.Args[3])
		f, err := os.OpenFile(os.Args[2], os.O_CREATE|os.O_RDWR, 0o600)
		if err == nil {
			err = f.Truncate(int64(bytes))
		}
		if err == nil {
			_, err = syscall.Mmap(int(f.Fd()), 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		}
		fmt.Println("mapped", err)
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "steps": // steps DIR: goes on from the step that it finds, one every 20 ms, each replaced by rename
		dir := os.Args[2]
		b, _ := os.ReadFile(filepath.Join(dir, "step"))
		n, _ := strconv.Atoi(string(b))
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM) // before it says that it has begun
		fmt.Println("begins at step", n, "label", os.Getenv("MUSTER_RESUME_LABEL"))
		for {
			n++
			tmp := filepath.Join(dir, "step.tmp")
			if err := os.WriteFile(tmp, []byte(strconv.Itoa(n)), 0o644); err != nil {
				fmt.Println("write:", err)
				os.Exit(1)
			}
			if err := os.Rename(tmp, filepath.Join(dir, "step")); err != nil {
				fmt.Println("rename:", err)
				os.Exit(1)
			}
			select {
			case <-term:
				fmt.Println("ends at step", n)
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	case "result": // result DIR: lists DIR, and writes DIR/out at TERM
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		_, err := os.ReadDir(os.Args[2])
		fmt.Println("listed", err)
		<-term
		fmt.Println("write", os.WriteFile(filepath.Join(os.Args[2], "out"), []byte("the result"), 0o644))
	case "results": // results DIR: reads DIR/in again and again; at TERM it writes DIR/out
		dir := os.Args[2]
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		for before := ""; ; {
			b, err := os.ReadFile(filepath.Join(dir, "in"))
			if now := fmt.Sprintf("read %q %v", b, err); now != before {
				fmt.Println(now)
				before = now
			}
			select {
			case <-term:
				fmt.Println("write", os.WriteFile(filepath.Join(dir, "out"), []byte("the result"), 0o644))
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	case "shared": // shared DIR NAME: writes DIR/NAME, and tries what a hostile image would; then waits for TERM
		share(os.Args[2], os.Args[3])
	case "fill": // fill DIR open|close: writes until it fails, into one open file or into one that is opened each time
		fill(os.Args[2], os.Args[3] == "open")
	case "checkpoint": // checkpoint DIR: writes files and makes them durable, in each way; then waits for TERM
		dir := os.Args[2]
		fmt.Println("label", os.Getenv("MUSTER_RESUME_LABEL"))
		os.MkdirAll(filepath.Join(dir, "ckpt"), 0o755)
		os.WriteFile(filepath.Join(dir, "ckpt", "w"), []byte("weights"), 0o644)
		os.WriteFile(filepath.Join(dir, "log"), []byte("not of the checkpoint"), 0o644)
		os.Symlink("/etc", filepath.Join(dir, "out"))
		for _, args := range [][]string{
			{"checkpoint", filepath.Join(dir, "ckpt"), "--label", "step_7"}, {"checkpoint", "--no-wait", dir},
			{"checkpoint", "/tmp"}, {"checkpoint", filepath.Join(dir, "out")}, {"checkpoint"}, {"durable"},
		} {
			cmd := exec.Command("/run/muster/guest", args...)
			out, _ := cmd.CombinedOutput()
			fmt.Printf("%s: %d %s\n", strings.Join(args, " "), cmd.ProcessState.ExitCode(), strings.TrimSpace(string(out)))
		}
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		fmt.Println("running")
		<-term
	case "see": // prints what a workload can see and do
		_, err := net.DialTimeout("tcp", os.Args[2], 2*time.Second)
		fmt.Println("dial", err != nil)
		_, err = os.Create("/etc/hosts")
		fmt.Println("hosts read-only", err != nil)
		_, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP)
		fmt.Println("no raw socket", err != nil)
		_, err = syscall.Socket(40, syscall.SOCK_STREAM, 0)
		fmt.Println("no vsock", err != nil)
		fmt.Println("no mount", syscall.Mount("none", "/tmp", "tmpfs", 0, "") != nil)
		name, _ := os.Hostname()
		fmt.Println("hostname", name)
		_, err = net.LookupHost("node-0")
		fmt.Println("knows node-0", err == nil)
		fmt.Println("devices", os.Getenv("NVIDIA_VISIBLE_DEVICES"))
	}
}
