#!/usr/bin/env bash
# Records the captures of this folder: one disk, 4 KiB, one job, three mixes at four queue depths.
#
#   commands.sh SCRATCH [OUT] [POINT...]     POINT as randread_qd16; none: all of them
#
# SCRATCH is a folder on the disk to measure, outside the repository; 4 GiB are laid out there and
# removed at the end. It needs fio with libaio. The whole takes about three minutes.
set -eu

scratch=${1:?usage: commands.sh SCRATCH [OUT] [POINT...]}
out=$(cd "${2:-.}" && pwd)
shift; [ $# -eq 0 ] || shift
points=${*:-}
size=${SIZE:-4g}

mkdir -p "$scratch" "$out/logs"
cd "$scratch"
trap 'rm -f capture.dat' EXIT

fio --name=layout --filename=capture.dat --size="$size" --rw=write --bs=1m --direct=1 \
    --ioengine=libaio --iodepth=8 --refill_buffers --end_fsync=1 --output=/dev/null

common="--filename=capture.dat --size=$size --bs=4k --direct=1 --ioengine=libaio --numjobs=1
  --norandommap --randrepeat=0 --refill_buffers --group_reporting --thread=0
  --lat_percentiles=1 --clat_percentiles=1 --percentile_list=1:5:10:25:50:75:90:95:99:99.5:99.9:99.95:99.99"

# How busy all CPUs were during a point (fio itself included) and how much was stolen, from /proc/stat.
stat_line() { awk '/^cpu /{print $2+$3+$4+$7+$8, $9, $2+$3+$4+$5+$6+$7+$8+$9}' /proc/stat; }
note() { # name, the stat_line before
  echo "$1 $2 $(stat_line)" | awk '{
    printf "%s cpu_busy_pct=%.1f steal_pct=%.2f\n", $1, 100*($5-$2)/($7-$4), 100*($6-$3)/($7-$4)
  }' | tee -a "$out/conditions.txt"
}

record() { # name rwmixread iodepth
  rw=$1 depth=$2
  name=${rw}_qd$depth
  mix=""; [ "$rw" = randrw ] && mix="--rwmixread=70"
  before=$(stat_line)
  # shellcheck disable=SC2086
  fio --name="$name" $common --rw="$rw" $mix --iodepth="$depth" --time_based --runtime=8 --ramp_time=2 \
      --write_lat_log="$name" --log_avg_msec=100 --output-format=json+ --output="$out/$name.json"
  note "$name" "$before"
  mv "${name}"_clat.*.log "$out/logs/"
  rm -f "${name}"_lat.*.log "${name}"_slat.*.log
  sleep 2
}

for rw in randread randwrite randrw; do
  for depth in 1 4 16 64; do
    case " $points " in "  "|*" ${rw}_qd$depth "*) record $rw $depth ;; esac
  done
done

# Every request on its own (no averaging) for 12,000 requests: what an average hides.
for rw in randread randwrite; do
  for depth in 1 16; do
    name=${rw}_qd${depth}_each
    case " $points " in "  "|*" $name "*) ;; *) continue ;; esac
    before=$(stat_line)
    # shellcheck disable=SC2086
    fio --name="$name" $common --rw="$rw" --iodepth="$depth" --number_ios=12000 \
        --write_lat_log="$name" --output-format=json+ --output="$out/logs/$name.json"
    note "$name" "$before"
    gzip -9n < "${name}_clat.1.log" > "$out/logs/${name}_clat.1.log.gz"
    rm -f "$name"_*.log
  done
done
