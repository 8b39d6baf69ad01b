package heap

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroupLimit returns the bytes that the process's control group and those above it allow, or 0 without a limit. list
// is the file that names the group, root the folder of the hierarchy.
func cgroupLimit(list, root string) (limit int64) {
	b, err := os.ReadFile(list)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue // of version 1
		}
		for dir := filepath.Clean("/" + group); ; dir = filepath.Dir(dir) {
			b, err := os.ReadFile(filepath.Join(root, dir, "memory.max"))
			n, nerr := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is no number
			if err == nil && nerr == nil && n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
