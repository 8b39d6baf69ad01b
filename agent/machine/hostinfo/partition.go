package hostinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

const (
	fullMember       = 0x8000
	defaultPartition = 0x7fff
)

// SolePartition returns the index of a partition in the port's table of partition keys, in a sysfs tree, "" = /sys. It
// is an error if the port is no full member of it, or is a member of another. It may be a limited member of the default
// partition, as every port is: limited members reach full ones only, which is the subnet manager.
func SolePartition(root string, h agentapi.HCA, pkey int) (index int, err error) {
	if root == "" {
		root = "/sys"
	}
	dir := filepath.Join(root, "class/infiniband", h.Device, "ports", strconv.Itoa(h.Port), "pkeys")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	index = -1
	for _, e := range entries {
		i, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		key, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 16)
		switch {
		case err != nil:
			return 0, fmt.Errorf("partition key %d: %w", i, err)
		case int(key) == pkey|fullMember:
			if index < 0 || i < index {
				index = i
			}
		case key == 0, key == defaultPartition:
		default:
			return 0, fmt.Errorf("it is a member of %#04x", key)
		}
	}
	if index < 0 {
		return 0, fmt.Errorf("it is no full member of %#04x", pkey)
	}
	return index, nil
}
