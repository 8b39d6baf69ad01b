package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Files are numbered. Each begins with a checkpoint, so only the newest is needed to continue. The older ones are an
// archive for Replay.

// recover finds the newest file with a complete checkpoint, replays it, and truncates its torn tail. Newer files
// without a checkpoint were being created when the process died; what they would have held is in the file before them.
func (j *Journal) recover() error {
	nums, err := j.list()
	if err != nil {
		return err
	}
	for _, num := range slices.Backward(nums) {
		b, err := os.ReadFile(j.path(num))
		if err != nil {
			return err
		}
		var s state
		good, whole := replay(b, func(rec record) { s.apply(rec) })
		if !whole {
			j.cfg.Log.Warn("journal: file without a checkpoint removed", "file", j.path(num), "bytes", len(b))
			if err := os.Remove(j.path(num)); err != nil {
				return err
			}
			continue
		}
		if good < len(b) {
			j.cfg.Log.Warn("journal: torn tail cut off", "file", j.path(num), "bytes", len(b)-good)
		}
		f, err := os.OpenFile(j.path(num), os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(int64(good)), f.Sync()); err != nil {
			return errors.Join(err, f.Close())
		}
		if _, err := f.Seek(int64(good), 0); err != nil {
			return errors.Join(err, f.Close())
		}
		j.s, j.file, j.num, j.size = s, f, num, int64(good)
		return nil
	}
	j.s = state{Boot: j.cfg.BootID}
	if len(nums) > 0 {
		j.num = nums[len(nums)-1]
	}
	return j.rotate()
}

// replay calls f for every complete record, and returns how many bytes they take and whether the first is a checkpoint.
func replay(b []byte, f func(record)) (good int, whole bool) {
	rest := b
	for len(rest) > 0 {
		payload, next, err := nextFrame(rest)
		if err != nil {
			break
		}
		var rec record
		if json.Unmarshal(payload, &rec) != nil {
			break // the checksum is correct, so another program wrote the record: treat it as torn
		}
		if good == 0 && rec.Checkpoint == nil {
			return 0, false
		}
		f(rec)
		whole = true
		good += len(rest) - len(next)
		rest = next
	}
	return good, whole
}

// rotate begins a new file with a checkpoint. It leaves the old file only when the new one is safely on the disk.
func (j *Journal) rotate() error {
	b, err := json.Marshal(record{Checkpoint: &j.s})
	if err != nil {
		return fmt.Errorf("encode a checkpoint of the journal: %w", err)
	}
	frame := appendFrame(nil, b)
	f, err := os.OpenFile(j.path(j.num+1), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create a journal file: %w", err)
	}
	_, err = f.Write(frame)
	if err = errors.Join(err, f.Sync(), syncDir(j.dir)); err != nil {
		return errors.Join(fmt.Errorf("write a journal file: %w", err), f.Close())
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size, j.num = f, int64(len(frame)), j.num+1
	return nil
}

// tidy rotates a full file and removes old ones: those last written longer ago than Keep, since the checkpoint of the
// current file holds everything that is not acknowledged, and the oldest while all together are too big.
func (j *Journal) tidy() error {
	if j.size < j.cfg.RotateBytes {
		return nil
	}
	if err := j.rotate(); err != nil {
		return j.broken(err)
	}
	nums, err := j.list()
	if err != nil {
		return err
	}
	infos := make([]fs.FileInfo, 0, len(nums))
	total := int64(0)
	for _, num := range nums {
		info, err := os.Stat(j.path(num))
		if err != nil {
			return err
		}
		infos = append(infos, info)
		total += info.Size()
	}
	for i, num := range nums {
		old := j.cfg.Now().Sub(infos[i].ModTime()) > j.cfg.Keep
		if num == j.num || (!old && total <= j.cfg.MaxBytes) {
			break
		}
		if err := os.Remove(j.path(num)); err != nil {
			return err
		}
		total -= infos[i].Size()
	}
	return nil
}

// eachArchived calls f for every record of every file, oldest first.
func (j *Journal) eachArchived(f func(record)) error {
	nums, err := j.list()
	if err != nil {
		return err
	}
	for _, num := range nums {
		b, err := os.ReadFile(j.path(num))
		if err != nil {
			return err
		}
		replay(b, f)
	}
	return nil
}

func (j *Journal) list() (nums []int, err error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".journal"); ok {
			if n, err := strconv.Atoi(name); err == nil {
				nums = append(nums, n)
			}
		}
	}
	slices.Sort(nums)
	return nums, nil
}

// syncDir makes the name of a new file durable.
func syncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
