//go:build linux

package crash

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// disk is a file system (ext4) on an image file, mounted through a loop device.
//
// The image file holds the bytes that have reached the disk. Writes of the mounted file system wait
// in its page cache until a sync or the kernel's own writeback sends them to the loop device. So a
// copy of the image is the state after a power cut at that moment. Do not read through the loop
// device itself: it has a page cache of its own, and the disk does not.
type disk struct {
	image, mounted, device string
}

// shelf keeps images in a file system in memory, which copies them fast.
type shelf struct {
	dir   string
	blank string // an image with an empty file system
	made  int
}

const (
	diskSize = 64 << 20
	// commitSeconds stops the kernel's own writeback during a test, which would hide a missing sync.
	commitSeconds = 300
)

// newShelf makes a shelf for a test with so many crashes. It skips the test where mounting is not possible.
func newShelf(t testing.TB, crashes int) *shelf {
	t.Helper()
	s := &shelf{dir: mountMemory(t, "1g", crashes)}
	s.blank = filepath.Join(s.dir, "blank.img")
	must(t, os.WriteFile(s.blank, nil, 0o600))
	must(t, os.Truncate(s.blank, diskSize))
	must(t, run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", s.blank))
	trial := filepath.Join(s.dir, "trial")
	must(t, os.Mkdir(trial, 0o700))
	if err := run("mount", "-o", "loop", s.blank, trial); err != nil {
		skip(t, crashes, err)
	}
	unmount(t, trial)
	return s
}

// mountMemory mounts a file system in memory. It skips the test where mounting is not possible.
func mountMemory(t testing.TB, size string, crashes int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, crashes, errors.New("mounting needs root"))
	}
	dir := t.TempDir()
	if err := run("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir); err != nil {
		skip(t, crashes, err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// unmount always unmounts, and reports when it had to use force.
func unmount(t testing.TB, dir string) {
	t.Helper()
	var err error
	for range 50 {
		if err = run("umount", dir); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error(errors.Join(err, run("umount", "-l", dir)))
}

func run(name string, args ...string) error {
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, output)
	}
	return nil
}

func (s *shelf) empty(t testing.TB) *disk {
	t.Helper()
	image := s.image()
	copySparse(image, s.blank)
	return s.mount(t, image)
}

func (s *shelf) image() string {
	s.made++
	return filepath.Join(s.dir, fmt.Sprintf("%d.img", s.made))
}

// mount mounts an image. The file system replays its journal if it must.
func (s *shelf) mount(t testing.TB, image string) *disk {
	t.Helper()
	d := &disk{image: image, mounted: image + ".mounted"}
	must(t, os.Mkdir(d.mounted, 0o700))
	must(t, run("mount", "-o", fmt.Sprintf("loop,commit=%d", commitSeconds), image, d.mounted))
	t.Cleanup(func() { d.discard(t) })
	device := got(exec.Command("findmnt", "-n", "-o", "SOURCE", d.mounted).Output())
	d.device = filepath.Base(strings.TrimSpace(string(device)))
	return d
}

// discard removes the disk, which must not be in use. The loop device goes with the mount.
func (d *disk) discard(t testing.TB) {
	t.Helper()
	if d.mounted == "" {
		return
	}
	unmount(t, d.mounted)
	d.mounted = ""
	if err := os.Remove(d.image); err != nil {
		t.Error(err)
	}
}

func (d *disk) path(name string) string { return filepath.Join(d.mounted, name) }

// cut returns the disk after a power cut now.
func (d *disk) cut(t testing.TB, s *shelf) *disk {
	t.Helper()
	image := s.image()
	for range 100 {
		before := d.writes()
		copySparse(image, d.image)
		if before == d.writes() && before.underWay == 0 {
			return s.mount(t, image)
		}
		must(t, os.Remove(image))
	}
	t.Fatal("the disk is never still")
	return nil
}

// writes counts what a device has written.
type writes struct{ requests, sectors, underWay uint64 }

// writes reads the device's counters. A copy between two equal readings, with nothing under way, is consistent.
func (d *disk) writes() (w writes) {
	text := got(os.ReadFile("/sys/block/" + d.device + "/stat"))
	var reads [4]uint64
	var merges, ticks uint64
	got(fmt.Sscan(string(text), &reads[0], &reads[1], &reads[2], &reads[3], &w.requests, &merges, &w.sectors, &ticks, &w.underWay))
	return w
}

// The extent and mode of one writeback (see sync_file_range(2)).
const (
	spillPages   = 8
	pageSize     = 4096
	writeAndWait = 1 | 2 | 4
)

// spill writes back some unsynced pages of the files, as the kernel may at any time and in any order. A power cut
// then leaves neither the old state nor the new one. The file system's own journal may or may not follow.
func (d *disk) spill(files ...string) {
	for _, name := range files {
		spillPart(d.path(name))
	}
	if rand.N(2) == 1 {
		other := got(os.Create(d.path("other")))
		got(0, errors.Join(other.Sync(), other.Close()))
	}
}

func spillPart(path string) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	defer got(file, err).Close()
	size := got(file.Stat()).Size()
	for at := rand.Int64N(spillPages) * pageSize; at < size; at += (1 + rand.Int64N(4*spillPages)) * pageSize {
		length := (1 + rand.Int64N(spillPages)) * pageSize
		got(0, syscall.SyncFileRange(int(file.Fd()), at, length, writeAndWait))
	}
}

// Modes of lseek(2) for data and holes.
const (
	seekData = 3
	seekHole = 4
)

// copySparse copies a file without its holes.
func copySparse(to, from string) {
	in := got(os.Open(from))
	defer in.Close()
	out := got(os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600))
	for end := int64(0); ; {
		start, err := in.Seek(end, seekData)
		if errors.Is(err, syscall.ENXIO) {
			got(0, errors.Join(out.Truncate(got(in.Stat()).Size()), out.Close()))
			return
		}
		end = got(in.Seek(got(start, err), seekHole))
		got(io.Copy(io.NewOffsetWriter(out, start), io.NewSectionReader(in, start, end-start)))
	}
}
