"""Heat maps of images: how faithful they are and how well they locate the object. Pure array functions, no torch."""

from whichtoken.vision.maps import pixel_map, resized, scaled
from whichtoken.vision.pixels import PixelCurves, accuracy_auc, aopc, log_odds, removal_order, without_pixels
from whichtoken.vision.segmentation import (
    Overlap,
    Segmentation,
    average_precision,
    mean_average_precision,
    mean_iou,
    overlap,
    pixel_accuracy,
)

__all__ = [
    "Overlap",
    "PixelCurves",
    "Segmentation",
    "accuracy_auc",
    "aopc",
    "average_precision",
    "log_odds",
    "mean_average_precision",
    "mean_iou",
    "overlap",
    "pixel_accuracy",
    "pixel_map",
    "removal_order",
    "resized",
    "scaled",
    "without_pixels",
]
