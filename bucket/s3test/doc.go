// Package s3test tests vigil-bucket, as a process, with an object storage that speaks S3: versitygw, which keeps buckets in
// directories. What a bucket must do, packages bucket and buckettest say; what depends on an archive in it is tested with vigil
// and vigilctl as processes. make bucket-test runs the tests.
package s3test
