package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// share uses a shared folder as a program would, and then as a hostile one would.
func share(dir, name string) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	entries, err := os.ReadDir(dir)
	fmt.Println("found", len(entries), err)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		fmt.Printf("read %s %q\n", e.Name(), b)
	}
	err = os.WriteFile(filepath.Join(dir, name), []byte("of "+name), 0o644)
	fmt.Println("write read-only", errors.Is(err, syscall.EROFS))
	if err == nil {
		hostile(dir)
	}
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 5 && f[4] == dir {
			fmt.Println("options", f[5])
		}
	}
	fmt.Println("running")
	<-term
}

// hostile leaves in a folder what an attacker would.
func hostile(dir string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	fmt.Println("device refused", syscall.Mknod(in("disk"), syscall.S_IFBLK|0o666, 7<<8) != nil)
	above, _ := os.ReadDir(in(".."))
	fmt.Println("above is the container's", len(above) > 3)
	fmt.Println("rename itself refused", os.Rename(dir, dir+"-away") != nil)
	fmt.Println("replace itself refused", os.Remove(dir) != nil)
	os.Symlink("/etc", in("etc"))
	os.Symlink("../..", in("up"))
	os.Symlink(in("loop"), in("loop"))
	os.Mkdir(in("a\nname \\040"), 0o755)
	os.WriteFile(in("setuid"), []byte("#!/bin/sh\n"), 0o755)
	os.Chmod(in("setuid"), 0o755|os.ModeSetuid)
	syscall.Mkfifo(in("fifo"), 0o666)
	fmt.Println("link from elsewhere refused", os.Link("/etc/hosts", in("hosts")) != nil)
	os.Chmod(dir, 0)
	deep := dir
	for range 60 {
		deep += "/d"
		os.Mkdir(deep, 0o755)
	}
	os.WriteFile(deep+"/bottom", []byte("here"), 0o644)
}

// fill writes a megabyte after another until that fails.
func fill(dir string, keep bool) {
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	f, err := os.OpenFile(filepath.Join(dir, "filled"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	for {
		if err == nil {
			_, err = f.Write(block)
		}
		if err != nil {
			fmt.Println("full:", err)
			break
		}
		if !keep {
			f.Close()
			time.Sleep(50 * time.Millisecond)
			f, err = os.OpenFile(filepath.Join(dir, "filled"), os.O_WRONLY|os.O_APPEND, 0o644)
			continue
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Hour)
}
