package gpu

import (
	"bufio"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// kernelLog is the device from which the kernel's messages are read, one record a read:
// "PRIORITY,SEQ,MICROSECONDS,FLAGS;TEXT".
const kernelLog = "/dev/kmsg"

// kernelLine is what a line of the kernel's log reports of a GPU.
type kernelLine struct {
	Seq      uint64
	PCI      string // 0000:17:00
	Evidence Evidence
	Instance *int // GPU instance that it is about; nil: the whole GPU
	Fabric   bool // it is about a switch that all GPUs with NVSwitches share; PCI is ""
}

var (
	xidLine = regexp.MustCompile(`NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?` +
		`(?: GPU-I:([0-9a-fA-F]+))?\): ([0-9]{1,5})\b`)
	nvlinkSeverity = regexp.MustCompile(`(?i)\b(Non-?fatal|Fatal)\b`)
	sxidLine       = regexp.MustCompile(`nvidia-nvswitch\d+: SXid \(PCI:[0-9a-fA-F:.]+\): ([0-9]{1,6}), (Fatal|Non-fatal), (.*)`)
	pciName        = regexp.MustCompile(`\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\b`)
)

// parseKernelLine parses one record of /dev/kmsg. ok is false if it is not about a GPU; Seq is set whenever it can be
// read.
func parseKernelLine(line string) (out kernelLine, ok bool) {
	head, text, found := strings.Cut(line, ";")
	if !found {
		return out, false
	}
	fields := strings.Split(head, ",")
	if len(fields) < 3 {
		return out, false
	}
	seq, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return out, false
	}
	out.Seq = seq
	// A switch's error that is not fatal was corrected, or ends what used the link, which its GPU reports itself.
	if m := sxidLine.FindStringSubmatch(text); m != nil && m[2] == "Fatal" {
		out.Fabric = true
		out.Evidence = Evidence{Kind: kindSwitch, Code: "sxid-" + m[1], Weight: Suspect,
			Detail: "fatal error of an NVSwitch, SXid " + m[1] + ": " + strings.TrimSpace(m[3])}
		return out, true
	}
	if !strings.Contains(text, "NVRM:") {
		return out, false
	}
	if at := xidLine.FindStringSubmatchIndex(text); at != nil {
		m := xidLine.FindStringSubmatch(text)
		xid, err := strconv.Atoi(m[3])
		if err != nil {
			return out, false
		}
		if id, err := strconv.ParseUint(m[2], 10, 16); err == nil {
			instance := int(id)
			out.Instance = &instance
		}
		severity := strings.ReplaceAll(strings.ToLower(nvlinkSeverity.FindString(afterProcess(text[at[1]:]))), "-", "")
		out.PCI, out.Evidence = m[1], loggedXid(xid, severity)
		return out, true
	}
	if strings.Contains(text, "fallen off the bus") {
		m := pciName.FindStringSubmatch(text)
		if m == nil {
			return out, false
		}
		out.PCI = m[1]
		out.Evidence = Evidence{
			Kind:   kindOffBus,
			Weight: Quarantined,
			Detail: "the kernel's log: the GPU has fallen off the bus",
		}
		return out, true
	}
	return out, false
}

// afterProcess returns the message that follows an Xid's number, without ", pid=…, name=…," before it. The name is what
// the program chose and may contain commas; the messages of NVLink do not.
func afterProcess(text string) string {
	if !strings.HasPrefix(text, ", pid=") {
		return text
	}
	message := text[strings.LastIndexByte(text, ',')+1:]
	if strings.HasPrefix(message, " name=") {
		return ""
	}
	return message
}

// samePCI compares PCI names regardless of case, width of the domain, and function: 0000:17:00 equals 00000000:17:00.0.
func samePCI(a, b string) bool {
	return a != "" && shortPCI(a) == shortPCI(b)
}

// shortPCI converts any form of a PCI name to the form 0000:17:00.
func shortPCI(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(s), ".")
	domain, rest, _ := strings.Cut(s, ":")
	domain = strings.TrimLeft(domain, "0")
	return strings.Repeat("0", max(0, 4-len(domain))) + domain + ":" + rest
}

// readKernelLog calls line for each record, from the oldest that the kernel still holds, until f is closed. A record
// that was overwritten before it was read is skipped.
func readKernelLog(f *os.File, line func(kernelLine)) error {
	r := bufio.NewReaderSize(f, 16<<10) // the kernel returns whole records of at most 8 KiB
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			if errors.Is(err, syscall.EPIPE) {
				continue
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
		if l, ok := parseKernelLine(strings.TrimSuffix(text, "\n")); ok {
			line(l)
		}
	}
}
