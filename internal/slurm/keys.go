package slurm

import (
	"os"
	"path/filepath"
	"slices"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/secret"
)

// exportAll has tasks get the environment of sbatch, which holds what environ and
// export name and nothing else. With a list of names nodes would run a login shell
// of the user before each task, for two seconds.
const exportAll = "--export=ALL"

// export is what the environment of sbatch gets beside environ. Slurm keeps it on
// disk. A secret is a file that only its owner can read; what Slurm gets is the
// file's name.
func (c *Cluster) export(id string) (env []string, err error) {
	add := func(name, value string) { env = append(env, name+"="+value) }
	for _, name := range c.opt.Secrets {
		if path := os.Getenv(name + "_FILE"); path != "" && os.Getenv(name) == "" {
			if _, err := secret.FromFile(path); err != nil {
				return nil, fail.Wrap(fail.Usage, "read "+name+"_FILE", "", err)
			}
			if path, err = filepath.Abs(path); err != nil {
				return nil, fail.Wrap(fail.Usage, "read "+name+"_FILE", path, err)
			}
			add(name+"_FILE", path)
			continue
		}
		v := secret.FromEnv(name)
		if v.IsZero() {
			continue
		}
		if err := c.keyFolder(id); err != nil {
			return nil, err
		}
		path := filepath.Join(c.keys, name)
		if err := atomicfile.WriteFile(path, []byte(v.Reveal()+"\n")); err != nil {
			return nil, err
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, fail.Wrap(fail.Disk, "protect file", path, err)
		}
		add(name+"_FILE", path)
	}
	for _, name := range c.opt.Exports {
		value, ok := os.LookupEnv(name)
		switch {
		case slices.Contains(c.opt.Secrets, name) || hasPassword(value) || secret.Scrub(value) != value:
			return nil, fail.New(fail.Usage, "--export", "", "%s holds a secret, and Slurm keeps the environment of jobs on disk", name)
		case ok:
			add(name, value)
		}
	}
	return env, nil
}

// keyFolder makes the folder of the secrets' files: nobody else can look into it, so
// that a file is never open to others, not for a moment.
func (c *Cluster) keyFolder(id string) error {
	if c.keys != "" {
		return nil
	}
	base := c.opt.Keys
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fail.WithHint(fail.Wrap(fail.Usage, "find the home folder", "", err), "say where the files of keys may lie: --keys DIR")
		}
		base = filepath.Join(home, ".searchloop", "keys")
	}
	base, err := filepath.Abs(base)
	if err == nil {
		err = os.MkdirAll(base, 0o700)
	}
	dir := filepath.Join(base, id)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return fail.Wrap(fail.Disk, "make folder", dir, err)
	}
	c.keys = dir
	return nil
}

// Close removes the secrets' files.
func (c *Cluster) Close() error {
	if c.keys == "" {
		return nil
	}
	return fail.Wrap(fail.Disk, "remove", c.keys, os.RemoveAll(c.keys))
}
