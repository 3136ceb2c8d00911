"""PACS, Office-31, Office-Home and VisDA-2017: folders of pictures in the layouts in which they are distributed.

A set is looked for below the data folder, under the names that its archives unpack to. The names of its classes are
checked, and a domain that lacks pictures says so in its name, so that results on it are not taken for the usual ones.
This module imports neither NumPy nor PyTorch, because the command line lists the tasks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from vmt.errors import InputError, few

if TYPE_CHECKING:
    from vmt.data.files.folders import PictureList

OFFICE_31 = """back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp desktop_computer file_cabinet
headphones keyboard laptop_computer letter_tray mobile_phone monitor mouse mug paper_notebook pen phone printer
projector punchers ring_binder ruler scissors speaker stapler tape_dispenser trash_can"""
OFFICE_HOME = """Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards
Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer
Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil
Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon TV
Table Telephone ToothBrush Toys Trash_Can Webcam"""
VISDA = "aeroplane bicycle bus car horse knife motorcycle person plant skateboard train truck"


@dataclass(frozen=True)
class PictureDomain:
    """A domain of a set: its folder below that of the set, and the number of its pictures."""

    folder: str
    title: str
    pictures: int


@dataclass(frozen=True)
class PictureSet:
    """A published set of pictures in folders."""

    title: str
    folders: tuple[str, ...]
    """Where the set may be below the data folder, the usual place first."""
    classes: tuple[str, ...]
    domains: dict[str, PictureDomain]
    home: str
    """Where people get it."""

    def folder(self, data: Path, domain: str) -> Path:
        """The folder of a domain, which has one subfolder for each class."""
        inside = self.domains[domain].folder
        places = [data / folder / inside for folder in self.folders]
        if found := next((place for place in places if place.is_dir()), None):
            return found
        raise InputError(f"{places[0]} does not exist: get {self.title} from {self.home} and unpack it there.")

    def missing(self, data: Path) -> list[str]:
        """The folders of domains that are not there."""
        return [each.folder for each in self.domains.values() if not self._has(data, each)]

    def _has(self, data: Path, domain: PictureDomain) -> bool:
        return any((data / folder / domain.folder).is_dir() for folder in self.folders)

    def check(self, pictures: "PictureList", domain: str) -> str:
        """The name of a domain, which says if it lacks pictures; other classes than the set's are refused."""
        known = self.domains[domain]
        classes = set(pictures.labels or ())
        if classes != set(self.classes):
            wrong = sorted(set(self.classes) - classes) or sorted(classes - set(self.classes))
            what = "lacks the class" if set(self.classes) - classes else "has the folder"
            raise InputError(f"{pictures.name} {what} {few(wrong)}: unpack {self.title} again, from {self.home}.")
        count = len(pictures.files)
        other = "" if count == known.pictures else f" (this copy has {count:,} of {known.pictures:,} pictures)"
        return f"{self.title} {known.title}{other}"


PICTURE_SETS = {
    "pacs": PictureSet(
        "PACS",
        ("pacs", "PACS", "pacs/kfold", "PACS/kfold", "pacs_data", "kfold", "."),
        ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
        {
            "photo": PictureDomain("photo", "photographs", 1670),
            "art": PictureDomain("art_painting", "art paintings", 2048),
            "cartoon": PictureDomain("cartoon", "cartoons", 2344),
            "sketch": PictureDomain("sketch", "sketches", 3929),
        },
        "https://dali-dl.github.io/project_iccv2017.html",
    ),
    "office31": PictureSet(
        "Office-31",
        ("office31", "office-31", "office", "domain_adaptation_images", "."),
        tuple(OFFICE_31.split()),
        {
            "amazon": PictureDomain("amazon/images", "Amazon", 2817),
            "dslr": PictureDomain("dslr/images", "DSLR", 498),
            "webcam": PictureDomain("webcam/images", "webcam", 795),
        },
        "https://faculty.cc.gatech.edu/~judy/domainadapt/",
    ),
    "officehome": PictureSet(
        "Office-Home",
        ("officehome", "OfficeHomeDataset_10072016", "office_home", "OfficeHome", "."),
        tuple(OFFICE_HOME.split()),
        {
            "art": PictureDomain("Art", "art", 2427),
            "clipart": PictureDomain("Clipart", "clip art", 4365),
            "product": PictureDomain("Product", "products", 4439),
            "real": PictureDomain("Real World", "real world", 4357),
        },
        "https://www.hemanthdv.org/officeHomeDataset.html",
    ),
    "visda": PictureSet(
        "VisDA-2017",
        ("visda", "visda2017", "VisDA-2017", "visda-2017", "."),
        tuple(VISDA.split()),
        {
            "synthetic": PictureDomain("train", "synthetic renderings", 152_397),
            "real": PictureDomain("validation", "real pictures", 55_388),
        },
        "https://ai.bu.edu/visda-2017/",
    ),
}


@dataclass(frozen=True)
class PictureTask:
    """Two domains of a set as a task."""

    name: str
    set: PictureSet
    source: str
    target: str

    def folders(self, data: Path | str | None) -> tuple[Path, Path]:
        """The folders of the source and the target."""
        if data is None or not Path(data).is_dir():
            given = "" if data is None else f"; {data} does not exist"
            raise InputError(
                f"the task {self.name} reads {self.set.title} from folders of pictures: give the folder that holds "
                f"{self.set.folders[0]} with --data{given}; it is published at {self.set.home}."
            )
        return self.set.folder(Path(data), self.source), self.set.folder(Path(data), self.target)

    def names(self, data: Path | str | None) -> tuple[str, str]:
        """The names of both domains, after a check of their classes."""
        from vmt.data.files.folders import list_pictures

        source, target = self.folders(data)
        return self.set.check(list_pictures(source), self.source), self.set.check(list_pictures(target), self.target)

    @property
    def description(self) -> str:
        return f"folders of pictures, {len(self.set.classes)} classes"


def _tasks() -> Iterator[PictureTask]:
    for name, each in PICTURE_SETS.items():
        if name == "visda":
            yield PictureTask(name, each, "synthetic", "real")
        else:
            for source, target in permutations(each.domains, 2):
                yield PictureTask(f"{name}-{source}-{target}", each, source, target)


PICTURE_TASKS = {task.name: task for task in _tasks()}
