package restore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// newest returns the position of the source, and of the others if there are any, and which of them
// is the newest.
func newest(ctx context.Context, o *Options) (list []Position, best int, err error) {
	if len(o.Others) > 0 && o.SourceWAL != "" {
		return nil, 0, errors.New("give --source-wal-dir with one directory: it is the raft log of one member")
	}
	for i, path := range append([]string{o.Source}, o.Others...) {
		one := *o
		one.Source, one.Others = path, nil
		if _, err := o.FS.Stat(filepath.Join(path, memberDir)); err != nil {
			return nil, 0, fmt.Errorf("%s is not a directory of an etcd member: of several sources each must be one, and they must be of one cluster: %w", path, err)
		}
		s, err := openEtcd(ctx, &one)
		if err != nil {
			return nil, 0, err
		}
		s.close()
		list = append(list, s.last)
		if s.last.ClusterID != list[0].ClusterID {
			return nil, 0, fmt.Errorf("%s and %s belong to different clusters, %x and %x: give the directories of one", list[0].Source, path, list[0].ClusterID, s.last.ClusterID)
		}
		if s.last.newer(list[best]) {
			best = i
		}
	}
	return list, best, nil
}
