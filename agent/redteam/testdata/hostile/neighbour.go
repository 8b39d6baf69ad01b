package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// port is the port on which nodes listen; a node's own guest listens on 29400 while it measures.
const port = 9000

// shmKey identifies the nodes' System V memory.
const shmKey = 0x4d5354

// node is a rank of another renter. It prints every visit, and puts a secret wherever a process could find another
// process's data.
func node(name, secret, mate string) {
	must := func(err error) {
		if err != nil {
			fmt.Println("BREACH the test: node:", err)
			os.Exit(1)
		}
	}
	must(os.WriteFile("/dev/shm/"+secret, []byte(name), 0o666))
	if _, _, e := syscall.Syscall(syscall.SYS_SHMGET, shmKey, 4096, unix.IPC_CREAT|0o666); e != 0 {
		must(e)
	}
	abstract, err := net.Listen("unix", "@"+secret)
	must(err)
	go answer(abstract, name)
	udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	must(err)
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(b)
			if err == nil {
				fmt.Printf("visited by %s who says %s\n", from, b[:n])
			}
		}
	}()
	tcp, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	must(err)
	if mate != "" {
		go func() { fmt.Printf("mate is %s\n", reachMate(mate, name)) }()
	}
	answer(tcp, name)
}

// answer sends its name on every connection, and prints the name of the visitor.
func answer(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			continue
		}
		go func() {
			defer c.Close()
			io.WriteString(c, name)
			c.SetReadDeadline(time.Now().Add(30 * time.Second))
			who, _ := io.ReadAll(io.LimitReader(c, 64))
			fmt.Printf("visited by %s who says %s\n", c.RemoteAddr(), who)
		}()
	}
}

// reachMate waits for the overlay and returns the name of the rank at one of its addresses.
func reachMate(addr, own string) string {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if who, err := visit(net.Dialer{Timeout: 20 * time.Second}, net.JoinHostPort(addr, strconv.Itoa(port)),
			own); err == nil {
			return who
		}
	}
	return "away"
}

// visit connects, sends its name and returns the name of the node that answers.
func visit(d net.Dialer, addr, own string) (string, error) {
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	io.WriteString(c, own)
	c.(*net.TCPConn).CloseWrite()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	who, _ := io.ReadAll(io.LimitReader(c, 64))
	return string(who), nil
}

// scan searches for the neighbours: nodes other than itself and its mate, whose overlay has the same addresses as its
// own.
func scan(secret, mate, overlayRange, bridge, victim string) {
	if who := reachMate(mate, "attacker"); who != "mate" {
		fmt.Printf("BREACH at our mate's address answers %q\n", who)
	}
	fmt.Println("held our mate answers at its address, and no other node")
	own := map[string]bool{}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		own[strings.Split(a.String(), "/")[0]] = true
	}
	b, o := netip.MustParsePrefix(bridge), netip.MustParsePrefix(overlayRange)
	gateway := b.Addr().Next()
	var everywhere []string
	for a := b.Addr().Next(); b.Contains(a); a = a.Next() {
		if !own[a.String()] && a != gateway {
			everywhere = append(everywhere, a.String())
		}
	}
	others := hosts(o, 16, own, mate)
	var sweeps sync.WaitGroup // concurrently: nearly all attempts wait for no answer
	sweeps.Go(func() { sweep("the bridge by TCP", net.Dialer{Timeout: 5 * time.Second}, everywhere) })
	sweeps.Go(func() { sweep("the overlay's addresses by TCP", net.Dialer{Timeout: 5 * time.Second}, others) })
	// Past its own overlay, through the other interface: the neighbours have the same addresses.
	sweeps.Go(func() {
		sweep("overlay addresses out of the bridge", net.Dialer{
			Timeout: 5 * time.Second,
			Control: through("eth0"),
		}, append(slices.Clone(others), mate))
	})
	sweeps.Go(func() { ping("by ICMP", victim) })
	sweeps.Wait()
	last := lastOf(b)
	for _, to := range slices.Concat(everywhere, others, []string{last, lastOf(o), "255.255.255.255", "224.0.0.1"}) {
		for _, card := range []string{"eth0", "ovl0"} {
			shout(to, card) // the receivers print whom it reached
		}
	}
	verdict("a forged source address", forge(victim))
	cards(victim)
	verdict("an abstract socket", dialUnix("@"+secret))
	if list, _ := os.ReadFile("/proc/net/unix"); strings.Contains(string(list), secret) {
		fmt.Println("BREACH a neighbour's socket is listed")
	}
	_, err := os.ReadFile("/dev/shm/" + secret)
	verdict("shared memory by name", err)
	_, _, e := syscall.Syscall(syscall.SYS_SHMGET, shmKey, 0, 0)
	verdict("shared memory by key", errno(e))
	processes()
	neighbours(gateway)
}

// hosts returns the first n addresses of a range that are not its own.
func hosts(p netip.Prefix, n int, own map[string]bool, mate string) (out []string) {
	for a := p.Addr().Next(); n > 0; a, n = a.Next(), n-1 {
		if !own[a.String()] && a.String() != mate {
			out = append(out, a.String())
		}
	}
	return out
}

func lastOf(p netip.Prefix) string {
	b := p.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|(1<<(32-p.Bits())-1))
	return netip.AddrFrom4(b).String()
}

// sweep tries the ports of nodes and of their guests at addresses, concurrently: none may answer.
func sweep(name string, d net.Dialer, addrs []string) {
	var all sync.WaitGroup
	found := make(chan string, 2*len(addrs))
	for _, a := range addrs {
		for _, p := range []int{port, 29400} {
			all.Go(func() {
				if who, err := visit(d, net.JoinHostPort(a, strconv.Itoa(p)), "attacker"); err == nil {
					found <- fmt.Sprintf("%s:%d %q", a, p, who)
				}
			})
		}
	}
	all.Wait()
	close(found)
	n := 0
	for f := range found {
		fmt.Printf("BREACH %s: %s answers\n", name, f)
		n++
	}
	if n == 0 {
		fmt.Printf("held %s: no answer at %d addresses\n", name, len(addrs))
	}
}

// through binds a socket to an interface.
func through(card string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), card) })
		return errors.Join(cerr, err)
	}
}

// shout sends a datagram through an interface, to several receivers if it is a broadcast or multicast address.
func shout(to, card string) {
	d := net.Dialer{Control: func(network, address string, c syscall.RawConn) (err error) {
		if err := through(card)(network, address, c); err != nil {
			return err
		}
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1) })
		return errors.Join(cerr, err)
	}}
	c, err := d.Dial("udp4", net.JoinHostPort(to, strconv.Itoa(port)))
	if err != nil {
		return
	}
	io.WriteString(c, "attacker")
	c.Close()
}

// ping sends echo requests with the kernel's own echo sockets, which need no capability.
func ping(name, addr string) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err == nil {
		defer unix.Close(fd)
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3})
	}
	if err == nil {
		err = unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1, 'm', 's', 't', '?'}, 0,
			&unix.SockaddrInet4{Addr: netip.MustParseAddr(addr).As4()})
	}
	if err == nil {
		_, _, err = unix.Recvfrom(fd, make([]byte, 64), 0)
	}
	verdict(name, err)
}

// forge sends packets as if they came from a neighbour.
func forge(victim string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	transparent := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	if transparent != nil { // which is refused; the other needs no capability
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.MustParseAddr(victim).As4()}); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("attacker"), 0, &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 80}, Port: port})
}

// cards tries to make its own interface look like a neighbour's.
func cards(victim string) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fmt.Println("BREACH the test: no socket:", err)
		return
	}
	defer unix.Close(fd)
	for name, nr := range map[string]uintptr{
		"another MAC":             unix.SIOCSIFHWADDR,
		"another address":         unix.SIOCSIFADDR,
		"listening to all frames": unix.SIOCSIFFLAGS,
	} {
		var ifr [40]byte
		copy(ifr[:16], "eth0")
		switch nr {
		case unix.SIOCSIFHWADDR:
			binary.NativeEndian.PutUint16(ifr[16:], unix.ARPHRD_ETHER)
			copy(ifr[18:], []byte{2, 0x42, 1, 2, 3, 4})
		case unix.SIOCSIFADDR:
			a := netip.MustParseAddr(victim).As4()
			binary.NativeEndian.PutUint16(ifr[16:], unix.AF_INET)
			copy(ifr[20:], a[:])
		case unix.SIOCSIFFLAGS:
			binary.NativeEndian.PutUint16(ifr[16:], unix.IFF_UP|unix.IFF_RUNNING|unix.IFF_PROMISC)
		}
		_, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), nr, uintptr(unsafe.Pointer(&ifr)))
		verdict(name, errno(e))
	}
	var arp [68]byte // struct arpreq: protocol address, hardware address, flags, mask, device
	a := netip.MustParseAddr(victim).As4()
	binary.NativeEndian.PutUint16(arp[0:], unix.AF_INET)
	copy(arp[4:], a[:])
	binary.NativeEndian.PutUint16(arp[16:], unix.ARPHRD_ETHER)
	copy(arp[18:], []byte{2, 0x42, 1, 2, 3, 4})
	binary.NativeEndian.PutUint32(arp[32:], 2|4) // ATF_COM, ATF_PERM
	copy(arp[52:], "eth0")
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), unix.SIOCSARP, uintptr(unsafe.Pointer(&arp)))
	verdict("an ARP entry of our own", errno(e))
}

// neighbours prints which neighbours its interface has learnt of: after all attacks, the gateway alone.
func neighbours(gateway netip.Addr) {
	table, err := os.ReadFile("/proc/net/arp")
	if err != nil {
		fmt.Println("BREACH the test: ARP's table:", err)
		return
	}
	n := 0
	for _, line := range strings.Split(string(table), "\n")[1:] {
		f := strings.Fields(line)
		if len(f) == 6 && f[3] != "00:00:00:00:00:00" && f[0] != gateway.String() {
			fmt.Printf("BREACH ARP found %s at %s\n", f[0], f[3])
			n++
		}
	}
	if n == 0 {
		fmt.Println("held ARP: it knows the gateway at most")
	}
}
